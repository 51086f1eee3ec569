"""From a task's documents to requests, lazily and in the task's own order.

lm-eval's Task objects write the prompts; this module walks the documents, one at a time, and gives each prompt the body
that lm-eval's ``local-chat-completions`` and ``local-completions`` clients would send. A document's requests follow one
another, so that the server still knows their common beginning.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.request_shape import shape_of
from assay.errors import AssayError, TaskConfigError, UnsupportedTaskError
from assay.tasks.chat_text import ChatPrompt
from assay.tasks.documents import are_same_objects, chosen, copied, may_be_changed
from assay.tasks.encoding import PromptEncoder
from assay.tasks.loglikelihood import LoglikelihoodBodies
from assay.tasks.patches.fewshot import cache_fewshot_examples, drop_unused_examples, examples_restored
from assay.tasks.patches.shared_settings import SharedSettings, share_generation_settings
from assay.tasks.prompts import ContextBuilder, chat_prompt
from assay.tasks.randomness import random_state_restored
from assay.tasks.selection import documents_of
from assay.tasks.task_errors import describe_error
from assay.types import LogprobSource, ModelSpec, Request, Sample, TaskOptions, TextTail, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.tasks.protocol import Task
    from assay.tasks.tokenizer import Tokenizer
    from assay.types import RequestKind

_MAX_CHAT_STOPS = 4
"""lm-eval cuts a chat request's stop list to what OpenAI's API accepts."""


def samples(
    name: str,
    task: Task,
    writer: RequestWriter,
    options: TaskOptions,
    refuse: Callable[[str], None] | None = None,
) -> Iterator[Sample]:
    """Yield the task's samples, each built only when asked for.

    A task draws its few-shot examples from one random stream in document order, so the order here must be the task's.

    Args:
        name: the task's name.
        task: lm-eval's Task object.
        writer: writes the requests.
        options: how documents become requests.
        refuse: called with the reason if a prompt cannot be written; see :func:`until_refused`. None: that is raised.

    Raises:
        UnsupportedTaskError: a document yields requests that the endpoint cannot serve.
        TaskConfigError: the task's own code fails on a document.
    """
    build: Callable[..., Sample] = SampleBuilder(name, task, writer, options).build
    if refuse is not None:
        build = until_refused(name, build, refuse)
    for doc_id, doc in chosen(task.eval_docs, documents_of(name, task, options)):
        yield build(doc_id, doc)


def until_refused(name: str, build: Callable[..., Sample], refuse: Callable[[str], None]) -> Callable[..., Sample]:
    """Wrap `build`: from its first failure on, samples have no requests.

    Args:
        name: the task's name.
        build: makes the sample of the document with the number that is its first argument.
        refuse: called once with what is wrong.
    """
    has_failed = False

    def build_or_not(doc_id: int, *doc: Any) -> Sample:
        nonlocal has_failed
        if not has_failed:
            try:
                return build(doc_id, *doc)
            except TaskConfigError as error:
                has_failed = True
                refuse(f"{error}; its answers are kept, and the same command goes on once that is mended")
        return Sample(name, doc_id, None, [], [])

    return build_or_not


def try_first_prompts(
    tasks: Mapping[str, Task], documents: Mapping[str, Sequence[int]], writer: RequestWriter, options: TaskOptions
) -> bytes | None:
    """Write each task's first prompt and discard it: a task that cannot be asked is found before the first request.

    Args:
        tasks: lm-eval's Task objects by name.
        documents: by task, the numbers of the documents to ask.
        writer: writes the requests.
        options: how documents become requests.

    Returns:
        The body of the first request; None where there is none.

    Raises:
        UnsupportedTaskError: a document yields requests that the endpoint cannot serve.
        TaskConfigError: a task's own code fails, for example for want of few-shot examples.
    """
    bodies = []
    for name, task in tasks.items():
        for doc_id, doc in chosen(task.eval_docs, documents[name][:1]):
            with random_state_restored(task), examples_restored(task):
                sample = SampleBuilder(name, task, writer, options).build(doc_id, doc)
            bodies += [request.payload for request in sample.requests[:1]]
    return next(iter(bodies), None)


class SampleBuilder:
    """Makes samples of one task's documents. Prompts may depend on those built before."""

    def __init__(self, name: str, task: Task, writer: RequestWriter, options: TaskOptions) -> None:
        self._name = name
        self._task = task
        self._writer = writer
        chat_template = writer.chat_template(options)
        self._is_chat = chat_template is not None
        self._repeats = task.get_config("repeats") or 1
        drop_unused_examples(task)
        cache_fewshot_examples(task)
        share_generation_settings(task)
        self._contexts = ContextBuilder(task, options, chat_template)
        self._copies = may_be_changed(task)
        self._scores_copies = self._copies and are_same_objects(task)

    def build(self, doc_id: int, doc: Any) -> Sample:
        """The sample of one document; the task's own code gets a copy of it.

        As in lm-eval, what that code changes while it writes the prompt reaches scoring only where the task keeps its
        documents.

        Raises:
            UnsupportedTaskError: it yields requests that the endpoint cannot serve.
            TaskConfigError: the task's own code fails on it, for example for want of few-shot examples.
        """
        try:
            asked = copied(doc) if self._copies else doc
            built = self._task.construct_requests(
                doc=asked,
                ctx=self._contexts.context(asked),
                metadata=(self._name, doc_id, self._repeats),
                apply_chat_template=self._is_chat,
                chat_template=self._contexts.chat_template,
            )
            # In lm-eval's order. A task may give all its instances one number, so they are told apart by their place.
            instances = sorted(built if isinstance(built, list) else [built], key=lambda instance: int(instance.idx))
            requests = [
                request
                for index, instance in enumerate(instances)
                for request in self._writer.requests_of(instance, (self._name, doc_id, index))
            ]
        except UnsupportedTaskError as error:
            raise UnsupportedTaskError(f"task '{self._name}' {error}") from None
        except AssayError:
            raise
        except Exception as error:  # a task is foreign code
            reason = self._lack_of_examples() or describe_error(error)
            raise TaskConfigError(f"task '{self._name}' cannot write document {doc_id}'s prompt: {reason}") from error
        return Sample(self._name, doc_id, asked if self._scores_copies else doc, instances, requests)

    def _lack_of_examples(self) -> str | None:
        """The message if there are too few examples to choose from.

        One more is drawn where the document itself may be among them.
        """
        pool = getattr(getattr(self._task, "sampler", None), "df", None)
        shots = self._task.get_config("num_fewshot") or 0
        if not shots or pool is None or shots < len(pool):
            return None
        return f"it needs {shots} examples, and there are {len(pool)} to choose from; see --num-fewshot"


class RequestWriter:
    """Writes requests for lm-eval's instances.

    Args:
        model: which endpoint and model are asked.
        tokenizer: the model's, where prompts are to be split here.
        source: how the server returns a prompt's log-probabilities; None where no task is known to need them.
    """

    def __init__(
        self, model: ModelSpec, tokenizer: Tokenizer | None = None, source: LogprobSource | None = None
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self._loglikelihood = None if source is None else LoglikelihoodBodies(model, tokenizer, source)
        sends_ids = tokenizer is not None and model.tokenized_requests
        self._shape = shape_of(model).identity + _engine_identity(model)
        is_local = model.local is not None
        self._encoder = (
            PromptEncoder(tokenizer, model.max_length, is_local=is_local) if tokenizer and sends_ids else None
        )

    def chat_template(self, options: TaskOptions) -> Callable[..., Any] | None:
        """The function that makes a prompt of a conversation; None where prompts are plain text.

        Raises:
            SpecificationError: the tokenizer has no chat template.
        """
        if self.model.endpoint == "chat":
            return chat_prompt
        if options.apply_chat_template and self._tokenizer is not None:
            return self._tokenizer.chat_template.render
        return None

    def requests_of(self, instance: Any, place: tuple[str, int, int]) -> Iterator[Request]:
        """All requests of one instance.

        Args:
            instance: lm-eval's.
            place: its task, the number of its document, and its place among the document's instances.

        Raises:
            UnsupportedTaskError: the endpoint cannot serve them.
        """
        kind: RequestKind = instance.request_type
        repeats = instance.repeats or 1
        if kind != "generate_until":
            bodies = [self._scored(instance, place[0])] * repeats
        elif self.model.distinct_repeat_seeds:
            bodies = [[(self._generation_body(instance, repeat), None)] for repeat in range(repeats)]
        else:
            bodies = [[(self._generation_body(instance), None)]] * repeats
        for repeat, bodies_of_repeat in enumerate(bodies):
            for body, scored in bodies_of_repeat:
                key = request_key((*place, repeat), self.model.endpoint, body, scored, self._shape)
                yield Request(*place, repeat, kind, body, key, scored)

    def _generation_body(self, instance: Any, seed_offset: int = 0) -> bytes:
        """The body, with `seed_offset` added to the seed."""
        prompt, gen_kwargs = instance.args
        if self._encoder is not None:
            if self.model.local is not None:
                gen_kwargs = local_settings(gen_kwargs)
            prompt = self._encoder.generation(prompt, gen_kwargs.get("max_gen_toks", self.model.max_gen_toks))
        if not seed_offset:
            return generation_payload(prompt, gen_kwargs, self.model)
        seed = gen_kwargs.get("seed", self.model.seed)
        return generation_payload(prompt, {**gen_kwargs, "seed": seed + seed_offset}, self.model)

    def _scored(self, instance: Any, task: str) -> list[tuple[bytes, TokenSpan | TextTail | None]]:
        if self._loglikelihood is None:
            raise TaskConfigError(
                f"task '{task}' asks for a log-likelihood ({instance.request_type}), which its first document did not"
            )
        return list(self._loglikelihood.of(instance))


def generation_payload(prompt: str | list[int] | ChatPrompt, gen_kwargs: dict[str, Any], model: ModelSpec) -> bytes:
    """The bytes that lm-eval sends for a ``generate_until`` request: its keys in lm-eval's order, in its encoding.

    Args:
        prompt: a :class:`ChatPrompt` for the chat endpoint, a plain string or token ids for completions.
        gen_kwargs: the task's ``generation_kwargs``; not changed.
        model: names the model, the endpoint and the seed.
    """
    if isinstance(prompt, ChatPrompt):
        content = b'"messages": ' + prompt.escaped
    elif isinstance(prompt, list):
        content = b'"prompt": ' + json.dumps([prompt]).encode("ascii")
    elif model.endpoint == "chat":
        raise UnsupportedTaskError(
            "writes its prompts as plain text, of which no chat messages can be made; ask the completions endpoint "
            "(--completions)"
        )
    else:
        content = b'"prompt": ' + json.dumps(prompt).encode("ascii")
    return b"{%b, %b" % (content, _settings_json(gen_kwargs, model))


def _settings_json(gen_kwargs: dict[str, Any], model: ModelSpec) -> bytes:
    """All of the body after the prompt, with the closing brace."""

    def make() -> bytes:
        return json.dumps(_settings(gen_kwargs, model)).encode("ascii")[1:]

    if isinstance(gen_kwargs, SharedSettings):
        identity = model.model, model.endpoint, model.seed, model.max_gen_toks, model.eos_string
        return gen_kwargs.remembered(identity, make)
    return make()


def _settings(gen_kwargs: dict[str, Any], model: ModelSpec) -> dict[str, Any]:
    rest = dict(gen_kwargs)
    if model.local is None:
        rest.pop("do_sample", None)
    default_tokens = rest.pop("max_gen_toks", model.max_gen_toks) if "max_tokens" not in rest else None
    max_tokens = rest.pop("max_tokens", default_tokens)
    temperature = rest.pop("temperature", 0)
    stop = _stop_sequences(rest.pop("until", None), model.eos_string)
    return {
        "model": model.model,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stop": stop[:_MAX_CHAT_STOPS] if model.endpoint == "chat" else stop,
        "seed": model.seed,
        **rest,
    }


def _engine_identity(model: ModelSpec) -> bytes:
    """What of a model in this process can change its answers; nothing of a server's."""
    return b"" if model.local is None else msgspec.json.encode(model.local.identity, order="sorted")


_NAMES_OF_MOST_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""In the order in which lm-eval's ``hf`` heeds them."""


def local_settings(gen_kwargs: dict[str, Any]) -> dict[str, Any]:
    """The settings of a generative request to a model in this process, where the most tokens have several names."""
    named = [name for name in _NAMES_OF_MOST_TOKENS if gen_kwargs.get(name) is not None]
    if not named or named == ["max_gen_toks"]:
        return gen_kwargs
    rest = {name: value for name, value in gen_kwargs.items() if name not in _NAMES_OF_MOST_TOKENS}
    return {**rest, "max_gen_toks": int(gen_kwargs[named[0]])}


def _stop_sequences(until: str | list[str] | None, eos_string: str | None) -> list[str]:
    stop = [] if until is None else [until] if isinstance(until, str) else until
    return stop if eos_string is None or eos_string in stop else [*stop, eos_string]


def request_key(
    place: tuple[str, int, int, int],
    endpoint: str,
    payload: bytes,
    scored: TokenSpan | TextTail | None = None,
    shape: bytes = b"",
) -> str:
    """Identity of a request: a hash of everything that can change its answer, and of the place its answer goes to.

    Args:
        place: task, doc_id, index and repeat.
        endpoint: kind of endpoint asked.
        payload: the full body, the model's name and the seed in it.
        scored: for a log-likelihood, the part of the prompt that it is about.
        shape: identifies the changes to bodies before they are sent; see :mod:`assay.client.request_shape`.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.sha256()  # what processors have instructions for
    digest.update(msgspec.json.encode((*place, endpoint)))
    digest.update(payload)
    if scored is not None:
        digest.update(_scored_json(scored))
    digest.update(shape)
    return digest.hexdigest()[:32]


def _scored_json(scored: TokenSpan | TextTail) -> bytes:
    if isinstance(scored, TokenSpan):
        return b'{"start": %d, "stop": %d}' % (scored.start, scored.stop)
    return json.dumps({"text": scored.text}).encode("ascii")
