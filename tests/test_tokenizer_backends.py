"""lm-eval's other tokenizers, tiktoken's and the server's own: the same requests and numbers as by lm-eval."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from assay.cli import main
from assay.errors import ServerUnreachableError, SpecificationError
from assay.tasks.remote_tokenizer import RemoteTokenizer
from assay.tasks.tiktoken_tokenizer import TiktokenTokenizer
from assay.tasks.tokenizer import server_has_tokenizer, tokenizer_of
from assay.types import ModelSpec
from tests.beside_lm_eval import TASKS, Scene
from tests.servers.echoing import Body, ImaginaryModel
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer
from tests.test_lm_eval_command import by_lm_eval, written

if TYPE_CHECKING:
    from pathlib import Path

    from assay.tasks.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

__all__ = ["by_lm_eval"]

END = "<|endoftext|>"
ROLLING = TASKS.parent / "loglikelihood_tasks"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(write_small_tokenizer(tmp_path / "tokenizer"), tmp_path)


@pytest.fixture
def small_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding of tiktoken's, a byte a token, under the name "bytes" and for the model "imaginary"."""
    pytest.importorskip("tiktoken")
    from tiktoken import Encoding, model, registry

    encoding = Encoding(
        "bytes",
        pat_str=r"\w+|\W",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={END: 256},
    )
    monkeypatch.setitem(registry.ENCODINGS, "bytes", encoding)
    monkeypatch.setitem(model.MODEL_TO_ENCODING, "imaginary", "bytes")


def pages(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer of a vLLM server."""
    info = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "Small"}
    return {
        "/tokenizer_info": lambda _: info,
        "/tokenize": lambda body: {"tokens": tokenizer.encode(body["prompt"])},
        "/detokenize": lambda body: {"prompt": tokenizer.decode(body["tokens"])},
    }


class _OfTheServer(TiktokenTokenizer):
    """Servers take the names of special tokens in a text for these tokens."""

    def encode(self, text: str) -> list[int]:
        first, *rest = text.split(END)
        return [
            *super().encode(first),
            *(token for part in rest for token in (256, *super(_OfTheServer, self).encode(part))),
        ]


@pytest.mark.parametrize("task", ["drawing", "choosing", "placing", "reading"])
@pytest.mark.parametrize(
    "arguments",
    [
        "tokenizer_backend=tiktoken,num_concurrent=2",
        "tokenizer_backend=tiktoken",
        "tokenizer_backend=tiktoken,tokenized_requests=False,num_concurrent=2",
        "tokenizer_backend=tiktoken,max_length=300,max_gen_toks=20,num_concurrent=2",
        "tokenizer_backend=remote,num_concurrent=2",
        "tokenizer_backend=remote",
        "tokenizer_backend=remote,tokenized_requests=False,num_concurrent=2",
        "tokenizer_backend=remote,max_length=300,custom_prefix_token_id=7,num_concurrent=2",
        "num_concurrent=2",
    ],
)
@pytest.mark.usefixtures("small_encoding")
def test_both_ask_and_score_the_same(
    task: str, arguments: str, scene: Scene, by_lm_eval: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if "tiktoken" in arguments:
        scene.model = ImaginaryModel(_OfTheServer("bytes"))
    own = {} if "tiktoken" in arguments else pages(scene.model.tokenizer)
    with ScriptedServer(answer=scene.answer, models=["imaginary"], json_pages=own) as server:
        served = f"model=imaginary,base_url={server.url}/v1/completions,{arguments}"
        command = shlex.split(f"run --model local-completions --model_args {served} --tasks {task} --limit 3")
        command += ["--include_path", str(ROLLING if task == "reading" else TASKS), "--log_samples"]
        by_lm_eval([*command, "--output_path", str(tmp_path / "theirs")])
        asked = len(server.answered)
        with pytest.raises(SystemExit) as ended:
            main(["lm-eval", *command, "--output_path", str(tmp_path / "ours"), "--no-probe"])
        assert ended.value.code == 0, capfd.readouterr().err
        expected, got = server.answered[:asked], server.answered[asked:]
    trial = 2 if any(body.get("echo") for body in expected) else 0
    assert Counter(map(json.dumps, got[trial:])) == Counter(map(json.dumps, expected))
    assert written(tmp_path / "ours") == written(tmp_path / "theirs")


@pytest.mark.usefixtures("small_encoding")
def test_tiktokens_encodings_go_by_their_own_name_or_a_models() -> None:
    for name in ("bytes", "imaginary"):
        tokenizer = tokenizer_of(spec("http://localhost:1", f"tiktoken:{name}"))
        assert tokenizer is not None
        assert tokenizer.encode(f"a{END}") == list(f"a{END}".encode())
        assert tokenizer.decode([104, 105, 256]) == f"hi{END}"
        assert (tokenizer.eos_token, tokenizer.prefix_token_id) == (END, 256)
        with pytest.raises(SpecificationError, match="has no chat template; ask the chat endpoint"):
            _ = tokenizer.chat_template


def test_an_encoding_that_tiktoken_lacks_is_one_line() -> None:
    pytest.importorskip("tiktoken")
    with pytest.raises(SpecificationError, match="'tiktoken:nosuch' cannot be loaded: Unknown encoding nosuch"):
        TiktokenTokenizer("nosuch")


def test_a_server_without_a_tokenizer_is_one_line() -> None:
    with ScriptedServer() as server, pytest.raises(SpecificationError, match="--enable-tokenizer-info-endpoint"):
        RemoteTokenizer(spec(server.url))


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ServerUnreachableError, match="the server's tokenizer cannot be asked: "):
        RemoteTokenizer(spec("http://127.0.0.1:9"))


@pytest.mark.parametrize("reply", [{}, {"tokens": "abc"}, {"tokens": [1.5]}, {"tokens": None}])
def test_a_reply_without_tokens_ends_the_run_and_fails_no_task(reply: Body) -> None:
    own = {"/tokenizer_info": lambda _: {}, "/tokenize": lambda _: reply, "/detokenize": lambda _: reply}
    with ScriptedServer(json_pages=own) as server:
        tokenizer = RemoteTokenizer(spec(server.url))
        with pytest.raises(ServerUnreachableError, match="/tokenize answered without tokens"):
            tokenizer.encode("a")
        with pytest.raises(ServerUnreachableError, match="/detokenize answered without tokens"):
            tokenizer.decode([1])


def test_a_servers_tokenizer_without_special_tokens_needs_a_prefix_by_number() -> None:
    own: dict[str, Any] = {"/tokenizer_info": lambda _: {"eos_token": None}, "/tokenize": lambda _: {"tokens": [5]}}
    with ScriptedServer(json_pages=own) as server:
        with pytest.raises(SpecificationError, match="--custom-prefix-token-id"):
            _ = RemoteTokenizer(spec(server.url)).prefix_token_id
        assert RemoteTokenizer(spec(server.url, custom_prefix_token_id=3)).prefix_token_id == 3


def test_a_servers_template_is_applied_as_the_models_own() -> None:
    template = "{% for turn in messages %}{{ bos_token }}{{ turn.content }}{% endfor %}"
    own = {"/tokenizer_info": lambda _: {"bos_token": "<s>", "chat_template": template}}
    with ScriptedServer(json_pages=own) as server:
        rendered = RemoteTokenizer(spec(server.url)).chat_template.render([{"role": "user", "content": "hi"}])
    assert rendered == "<s>hi"


def test_llama_cpps_tokenizer_goes_by_its_own_names(scene: Scene) -> None:
    tokenizer = scene.model.tokenizer
    own: dict[str, Any] = {
        "/props": lambda _: {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ bos_token }}"},
        "/tokenize": lambda body: {"tokens": tokenizer.encode(body["content"])} if not body["add_special"] else {},
        "/detokenize": lambda body: {"content": tokenizer.decode(body["tokens"])},
    }
    with ScriptedServer(json_pages=own) as server:
        remote = RemoteTokenizer(spec(server.url))
        assert not server_has_tokenizer(spec(server.url))  # by lm-eval's way of asking
        ids = remote.encode("The answer is")
        assert ids == tokenizer.encode("The answer is")
        assert remote.decode(ids) == "The answer is"
        assert (remote.prefix_token_id, remote.eos_token) == (1, "</s>")
        assert remote.chat_template.render([{"role": "user", "content": "hi"}]) == "<s>"


def test_two_tokenizers_named_at_once_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    served = "model=m,base_url=http://localhost:1/v1/completions,tokenizer=x,tokenizer_backend=tiktoken"
    with pytest.raises(SystemExit) as ended:
        main(["lm-eval", "--model", "local-completions", "--model_args", served, "--tasks", "gsm8k"])
    assert ended.value.code == 2
    assert "leave one of them out" in capfd.readouterr().err


def spec(url: str, tokenizer: str = "remote", **more: Any) -> ModelSpec:
    return ModelSpec(base_url=url, model="imaginary", endpoint="completions", tokenizer=tokenizer, **more)
