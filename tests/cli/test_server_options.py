"""Options of servers: declared once, alike for every command."""

import click
import pytest

from assay.cli.calibrate import calibrate
from assay.cli.gate import gate
from assay.cli.probe import probe
from assay.cli.run import run
from assay.cli.server_options import with_server_options
from assay.types import TLS, ModelSpec

CONNECTION = {"api_key_env", "api_key_file", "insecure", "ca_file", "client_cert", "client_key"}
PATIENCE = {"request_timeout", "max_attempts", "give_up_after"}
NOTHING = dict.fromkeys(CONNECTION | PATIENCE) | {"insecure": False}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (run, CONNECTION | PATIENCE),
        (gate, CONNECTION | PATIENCE),
        (calibrate, CONNECTION | PATIENCE),
        (probe, CONNECTION),
    ],
)
def test_commands_take_them_alike(command: click.Command, options: set[str]) -> None:
    parameters = {parameter.name: parameter for parameter in command.params}
    assert options <= parameters.keys()
    declared = {parameter.name: parameter for parameter in run.params}
    assert all(parameters[name].to_info_dict() == declared[name].to_info_dict() for name in options)


def test_what_is_not_said_stays() -> None:
    model = ModelSpec(base_url="http://h", model="m", max_attempts=3, tls=TLS(ca_file="a.pem", insecure=True))
    assert with_server_options(model, NOTHING) == model


def test_what_is_said_counts() -> None:
    model = ModelSpec(base_url="http://h", model="m", max_attempts=3, tls=TLS(client_cert="c.pem"))
    said = {"max_attempts": 5, "ca_file": "b.pem", "api_key_file": "key", "tasks": ("t",)}
    assert with_server_options(model, NOTHING | said) == ModelSpec(
        base_url="http://h",
        model="m",
        max_attempts=5,
        api_key_file="key",
        tls=TLS(client_cert="c.pem", ca_file="b.pem"),
    )
