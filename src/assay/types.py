"""The vocabulary: small frozen structs that every other module imports.

First what a user asks for (model, options, checks, budget), then requests, then what the journal keeps (answers with
their completions, failures with their causes), then samples.

Names are lm-eval's and HELM's where the meaning is theirs (``doc_id``, ``num_fewshot``, ``finish_reason``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

EndpointKind = Literal["chat", "completions"]
"""Which of the server's two text endpoints is asked."""

RequestKind = Literal["generate_until", "loglikelihood", "loglikelihood_rolling"]
"""lm-eval's request types."""

LOCAL_PREFIX = "hf:"
"""Begins the name of a model, or of a tokenizer, that transformers loads in this process."""


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """How the server's certificate is verified, and which client certificate is sent. All files are in PEM format."""

    insecure: bool = False
    """Accept any certificate."""
    ca_file: str | None = None
    """Trust the certificates in this file, instead of the system's."""
    client_cert: str | None = None
    """The client certificate, with its chain."""
    client_key: str | None = None
    """The client certificate's key, if it is in another file."""


Dialect = Literal["auto", "none", "openai", "azure", "mistral"]
"""How a provider's API differs from what other servers share; ``auto``: found out from the server's replies."""

USUAL_KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable that holds the API key where none is named."""


USUAL_MAX_GEN_TOKS = 256
"""lm-eval's ``max_gen_toks`` where neither the task nor the user sets one."""


Precision = Literal["auto", "float32", "bfloat16", "float16"]
"""Of a model's weights; ``auto``: as they are stored."""


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model that answers in this process is loaded and asked; see :func:`assay.LocalModel`."""

    dtype: Precision = "auto"
    device: str | None = None
    batch_size: int | Literal["auto"] = "auto"
    attn: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    identity: dict[str, str] = {}
    """What the loaded model says of itself, which belongs to its answers: the weights' hash, versions."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which model answers, and how it is asked."""

    base_url: str
    """The server's root, with or without ``/v1`` and a trailing slash."""
    model: str
    """The name that the server serves it under; sent in every request."""
    replicas: tuple[str, ...] = ()
    """Base URLs of further servers of the same model, which share the requests."""
    endpoint: EndpointKind = "chat"
    api_key_env: str = USUAL_KEY_VARIABLE
    """Environment variable that holds the key. The key itself is never part of a specification."""
    api_key_file: str | None = None
    """File that holds the key, instead of the variable."""
    tls: TLS = TLS()
    """For addresses with ``https``."""
    concurrency: int | Literal["auto"] = "auto"
    """Requests outstanding at once; ``auto`` finds out how many keep the server busy."""
    request_timeout: float = 7200.0
    """Seconds that one attempt may take, from the moment its connection is open."""
    max_attempts: int = 8
    """Attempts at one request before it counts as failed. An attempt does not count if the server was down, or if it
    replied 429 or 502 to 504 and answered no other request either."""
    stream: bool = False
    """Stream answers, and keep each one's time to first token. The answers are the same. Log-likelihoods are never
    streamed."""
    stall_timeout: float = 300.0
    """Seconds that a stream may pause, once it has begun."""
    give_up_after: float = 300.0
    """Seconds without any answer before the run stops, counted from the first attempt that fails after the last
    answer."""
    requests_per_minute: float | None = None
    """Requests that may be sent in a minute, to all endpoints together."""
    tokens_per_minute: float | None = None
    """Tokens of prompts and answers that may be used in a minute, by all endpoints together."""
    max_length: int | None = None
    """The model's context length in tokens, as lm-eval's ``max_length``."""
    seed: int = 1234
    """Sent as ``seed`` in every request."""
    distinct_repeat_seeds: bool | None = None
    """Send each repeat of a request with a seed of its own: ``seed`` and its number. lm-eval sends one with all. None:
    where ``repeats`` says how often to ask."""
    tokenizer: str | None = None
    """The model's tokenizer, for the completions endpoint: a Hugging Face tokenizer's folder or repository on the hub,
    ``tiktoken:NAME``, or ``remote`` for the server's own, over HTTP. With it prompts are split into tokens here and
    cut to ``max_length`` (2048 if not given), as lm-eval does; without it, log-likelihoods go by the server's own
    tokens."""
    tokenized_requests: bool = True
    """With a tokenizer: send token ids; else the text they stand for."""
    tokenizer_revision: str | None = None
    """Branch, tag or commit of a tokenizer that comes from the hub."""
    add_bos_token: bool = False
    """With a tokenizer: let it add its own special tokens."""
    custom_prefix_token_id: int | None = None
    """With a tokenizer: the token before a text without context, in place of its BOS token."""
    max_gen_toks: int = USUAL_MAX_GEN_TOKS
    """The most tokens to generate, where neither the task nor ``gen_kwargs`` says how many."""
    think_end_token: str | None = None
    """The text that ends reasoning in an answer: only what follows is scored, as with lm-eval's argument of that name.
    None: the whole text is scored."""
    thinking_budget: int | None = None
    """The most tokens of reasoning that the server is asked to allow for an answer, by vLLM's
    ``thinking_token_budget``."""
    headers: dict[str, str] = {}
    """Sent with every request, in place of Assay's own of the same name. A value is text, ``$VARIABLE`` or ``@FILE``;
    a value written as text is never recorded. An empty one removes Assay's own header."""
    dialect: Dialect = "auto"
    """How the provider's API differs; see :func:`assay.client.request_shape.dialect_shape`."""
    rename_fields: dict[str, str] = {}
    """Fields of request bodies that the server knows by another name: lm-eval's name -> the server's."""
    drop_fields: tuple[str, ...] = ()
    """Fields to leave out of every request's body."""
    extra_body: dict[str, Any] = {}
    """Fields to put into every request's body, in place of those of the same name."""
    eos_string: str | None = None
    """A stop string for every request that does not have it."""
    local: LocalOptions | None = None
    """Of a model in this process, which ``base_url`` names by ``hf:`` and its folder; None: a server is asked."""

    @property
    def base_urls(self) -> tuple[str, ...]:
        """All endpoints."""
        return (self.base_url, *self.replicas)


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the tasks' documents become requests. Names and meanings as in lm-eval."""

    limit: float | None = None
    """Documents a task: a count if >= 1, a fraction if < 1, all if None."""
    samples: dict[str, tuple[int, ...]] | None = None
    """In place of ``limit``: by task, the numbers of the documents to ask. A task that is not named is asked in full.
    As in lm-eval, documents that are not asked draw no few-shot examples."""
    num_fewshot: int | None = None
    repeats: int | None = None
    """Ask every document of a generative task so often, in place of the task's own number, and report its metrics for
    all answers, too: see :mod:`assay.tasks.repeats`."""
    gen_kwargs: dict[str, Any] = {}
    fewshot_as_multiturn: bool = True
    """In chat: few-shot examples are turns of their own; else they join the question in one user turn."""
    apply_chat_template: bool = False
    """On the completions endpoint: make prompts conversations, and send them as the text that the chat template of the
    model's tokenizer makes of them. The chat endpoint always gets conversations."""
    system_instruction: str | None = None
    include_path: str | None = None
    """A folder of the user's own task YAML."""
    data_dir: str | None = None
    """Where data sets lie: repositories laid out as on the hub, or a Hugging Face datasets cache."""
    random_seed: int = 0
    """Seed of Python's random numbers, from which some tasks draw when they prepare documents."""
    numpy_seed: int = 1234
    torch_seed: int = 1234
    """Seed of PyTorch's, for tasks whose own Python uses it."""
    fewshot_seed: int = 1234
    """Seed of few-shot examples that are drawn at random."""
    confirm_run_unsafe_code: bool = False
    """Tasks that run code which the model writes may run: in a sandbox, see ``docs/code.md``."""
    metadata: dict[str, Any] = {}
    """Added to every task's configuration, beside the model's arguments, for tasks that generate their data."""
    predict_only: bool = False
    """Keep the answers and score none: every task has the one metric ``bypass``."""


class MetricKey(NamedTuple):
    """The metric and filter of a value in lm-eval's results; as text ``"exact_match,get-answer"``."""

    metric: str
    """With ``_stderr`` at its end where the value is the metric's standard error."""
    filter: str

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def read(cls, text: str) -> MetricKey:
        """Read ``"<metric>,<filter>"``; a filter's name may have commas.

        Raises:
            ValueError: there is no comma.
        """
        metric, comma, filter_name = text.partition(",")
        if not comma:
            raise ValueError(f"{text!r} is no metric key: it has no comma between metric and filter")
        return cls(metric, filter_name)

    @property
    def is_stderr(self) -> bool:
        """Whether the value is a standard error."""
        return self.metric.endswith(_STDERR)

    @property
    def stderr(self) -> MetricKey:
        """The key of this metric's standard error."""
        return MetricKey(self.metric + _STDERR, self.filter)

    def __str__(self) -> str:
        return f"{self.metric},{self.filter}"


_STDERR = "_stderr"

MetricKeyText = Annotated[str, msgspec.Meta(pattern=",")]
"""A :class:`MetricKey` as files hold it."""


def score_keys(entry: Iterable[str]) -> list[str]:
    """The keys of a task's or group's results that are scores: no standard errors, no other entries."""
    return [key for key in entry if "," in key and not MetricKey.read(key).is_stderr]


USUAL_ALPHA = 0.01
"""Error rate of a run's checks together, where none is named."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A demand on one score: exactly one of ``min``, ``max`` and ``baseline``."""

    metric: str
    """``"<metric>,<filter>"``, as in lm-eval's results."""
    min: float | None = None
    """Met by a score of at least this."""
    max: float | None = None
    """Met by a score of at most this, for metrics of which less is better."""
    baseline: str | None = None
    """An earlier run that this one must not be worse than by more than ``margin``: a baseline or results file, or a
    folder of results."""
    margin: float | None = None
    """The greatest loss against the baseline that still passes, as a positive number."""
    alpha: float | None = None
    """Where the run may stop early: the check's own greatest chance of a wrong pass, and of a wrong fail. None: its
    share of the run's."""
    allow_mismatch: bool = False
    """Compare with the baseline even where documents, prompts or settings changed, on the documents that both have."""
    range: tuple[float, float] | None = None
    """Least and greatest score that a document can have, where the metric itself does not tell. Only where the range is
    known may a run stop early. A score outside it makes the check invalid."""
    task: str | None = None
    """The task or group; None: the only one of the run that reports this metric."""

    @property
    def error_rate(self) -> float:
        """``alpha``; of a check that belongs to no run yet, the usual one."""
        return USUAL_ALPHA if self.alpha is None else self.alpha


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """When a run that may stop early stops without a decision."""

    documents: int | None = None
    tokens: int | None = None
    """Of prompts and completions together, as the server counts them; estimated where it does not."""
    minutes: float | None = None


class EarlyStopping(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the documents in random order, only until all checks are decided."""

    budget: Budget = Budget()
    order_seed: int | None = None
    """Seed of the random order; None: a new one for every run, kept when the run is resumed."""
    holm: bool = False
    """The checks share the sum of their alphas by Holm's method; else each keeps its own."""


class Specification(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines one run."""

    tasks: tuple[str, ...]
    model: ModelSpec
    options: TaskOptions = TaskOptions()
    checks: tuple[Check, ...] = ()
    alpha: float = USUAL_ALPHA
    """Where the run may stop early: greatest chance that any check passes wrongly, and that any fails wrongly. The
    checks that have no ``alpha`` of their own share it alike."""
    early_stopping: EarlyStopping | None = None
    """None: every document is asked."""
    output_dir: str = "results"
    log_samples: bool = True
    """Write lm-eval's samples files, which baselines and comparisons need."""
    fresh: bool = False
    """Start anew even if an interrupted run of the same specification could be resumed."""
    probe: bool = False
    """Before the run, ask a dozen short requests to see how the server behaves (:mod:`assay.client.probe`). What they
    show is kept with the results, and never stops the run."""
    triage: bool = True
    """Say at the end why the scores are low, unless every check passes; see :mod:`assay.diagnosis`."""
    retry_failed: bool = False
    """Resume the newest run of this specification, even a finished one, and ask only what it has no answer to; never
    start another."""
    rerun: int = 0
    """Number of this run among several of the same specification; each has a journal of its own."""


class LogprobSource(StrEnum):
    """The way by which a server returns the log-probabilities of a prompt's own tokens."""

    ECHO = "echo"
    """``echo`` and ``logprobs`` of the completions protocol; what lm-eval sends."""
    PROMPT_LOGPROBS = "prompt_logprobs"
    """vLLM's parameter of that name."""
    SGLANG = "/generate"
    """SGLang's native endpoint."""
    LLAMA_CPP = "/completion"
    """llama.cpp's native endpoint: a request for each token that is scored."""


class TokenSpan(msgspec.Struct, frozen=True):
    """The part of a prompt whose log-likelihood is asked for, in tokens."""

    start: int
    """Tokens of context before it; the log-probability of a prompt's first token is never known."""
    stop: int
    """Tokens of the whole prompt: the part reaches to its end."""


class TextTail(msgspec.Struct, frozen=True):
    """The part of a prompt whose log-likelihood is asked for, as text: only the server knows its tokens."""

    text: str
    """The prompt ends with it."""


class Request(msgspec.Struct, frozen=True):
    """One call to a model."""

    task: str
    doc_id: int
    index: int
    """Position among the document's instances, by lm-eval's ``idx``: the choice number of a multiple-choice task."""
    repeat: int
    kind: RequestKind
    payload: bytes
    """The JSON body, byte for byte what lm-eval would send."""
    key: str
    """Hash of everything that can change the answer; see :func:`assay.tasks.requests.request_key`."""
    scored: TokenSpan | TextTail | None = None
    """For a log-likelihood: the part of the prompt that is scored."""


class FailureCause(StrEnum):
    """Why a request has no answer. A closed set, so that reports can count them."""

    UNREACHABLE = "unreachable"
    RESET = "reset"
    TIMED_OUT = "timed_out"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    CONTEXT_TOO_LONG = "context_too_long"
    BAD_REQUEST = "bad_request"
    UNAUTHORISED = "unauthorised"
    NOT_FOUND = "not_found"
    MALFORMED_REPLY = "malformed_reply"
    UNREADABLE_REPLY = "unreadable_reply"
    """A whole reply in an unknown format: asked again, the server would send the same."""
    EMPTY_CHOICES = "empty_choices"
    ERROR_IN_REPLY = "error_in_reply"
    UNSCORABLE = "unscorable"
    """The task's own code failed: its scorer raised or took too long, or its prompts cannot be written."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request, sent again, may be answered."""
        return self not in _PERMANENT


_PERMANENT = frozenset(
    {
        FailureCause.CONTEXT_TOO_LONG,
        FailureCause.BAD_REQUEST,
        FailureCause.UNAUTHORISED,
        FailureCause.NOT_FOUND,
        FailureCause.UNREADABLE_REPLY,
        FailureCause.UNSCORABLE,
    }
)


class CompletionToken(msgspec.Struct, frozen=True):
    """One token of a completion."""

    text: str
    logprob: int | float
    """Natural logarithm; 0 where the server gave none, as HELM has it."""


class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the texts in a reply."""

    text: str
    finish_reason: str | None = None
    reasoning: str | None = None
    tokens: tuple[CompletionToken, ...] = ()
    """Empty where the server returned none."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer"):
    """A model's answer to one request."""

    text: str | None
    """The content; None where the server sent null (scored as lm-eval scores it), and for log-likelihoods."""
    finish_reason: str | None = None
    reasoning: str | None = None
    """``reasoning_content`` (or ``reasoning``) where the server separates it, and the text up to the model's
    ``think_end_token``."""
    reasoning_tokens: int | None = None
    """Tokens of reasoning among the completion's, where the server counts them."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    latency: float = 0.0
    """Seconds from sending the last attempt to its last byte."""
    ttft: float | None = None
    """Seconds from sending the last attempt to its first token, where the answer was streamed."""
    attempts: int = 1
    model: str | None = None
    """The model name in the reply where it differs from the one asked for."""
    logprob: int | float | None = None
    """For a log-likelihood: the sum of the log-probabilities (natural logarithm) of the scored part. lm-eval writes
    both 0 and 0.0 to its files, hence the two types."""
    is_greedy: bool | None = None
    """For a log-likelihood: whether each token of the scored part was the likeliest."""
    endpoint: str | None = None
    """The address of the server that gave it, where the run has several."""
    completions: tuple[Completion, ...] = ()
    """For HELM's runs: all completions, with their tokens; the first one's text is `text`."""
    sent_at: int | None = None
    """For HELM's runs: when the request was first sent, in seconds since 1970."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="failure"):
    """Why there is no answer, after all attempts."""

    cause: FailureCause
    message: str
    """What the server or the network said, at most a few hundred characters, without secrets."""
    status: int | None = None
    """HTTP status of the last attempt, where there was one."""
    latency: float = 0.0
    attempts: int = 1
    endpoint: str | None = None
    """The address of the server of the last attempt, where the run has several."""


class FailedSample(msgspec.Struct, frozen=True):
    """A sample without a score, and why."""

    task: str
    doc_id: int
    cause: FailureCause
    message: str


Response = Answer | Failure


class Outcome(StrEnum):
    """What became of a sample. All but ``failed`` are scored, exactly as lm-eval scores them."""

    ANSWERED = "answered"
    TRUNCATED = "truncated"
    """The answer ended at the token limit (``finish_reason`` is ``length``)."""
    EMPTY = "empty"
    UNEXTRACTED = "unextracted"
    """The filter found no answer in the text."""
    FAILED = "failed"
    """No response after all attempts. It has no score and is never counted as wrong."""


class Sample(msgspec.Struct):
    """One document with its requests, as lm-eval's ``Instance`` objects and as bodies to send."""

    task: str
    doc_id: int
    doc: Any
    """The document as it is scored; the instances hold it as it was when the prompt was written."""
    instances: list[Any]
    """lm-eval Instances, in the order in which the task scores them."""
    requests: list[Request]
    """For every instance its repeats, one after another, and for each repeat all bodies that it takes."""


class CompleteSample(NamedTuple):
    """A sample with a response to each of its requests (same order)."""

    sample: Sample
    responses: Sequence[Response]


class StoppedEarly(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a run was asked before it stopped early."""

    order_seed: int
    documents: int
    """Documents that the results cover."""
    population: int
    """Documents of the whole run."""
    asked: int
    """Documents sent; those beyond ``documents`` were in flight when the last check was decided."""
    tasks: dict[str, tuple[int, int]]
    """By task: documents covered, and documents there are."""

    @property
    def complete_tasks(self) -> list[str]:
        """The tasks whose documents were all asked."""
        return [task for task, (counted, size) in self.tasks.items() if counted == size]
