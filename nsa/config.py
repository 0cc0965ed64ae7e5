"""What a run is: model, kernels, training, processes; one frozen tree, the same after a round trip by JSON.

Every setting has a dotted path (``model.n_layers``), a type, a default, a range and one line of meaning.
Whole-tree rules (which values fit together) are checked when the tree is built, so a ``RunConfig`` that exists
can be run.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from nsa.blocks import BlockLayout
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = bool | int | float | str
T = TypeVar("T", bool, int, float, str)


def _setting(
    default: T,
    meaning: str,
    *,
    choices: tuple[T, ...] = (),
    at_least: float | None = None,
    at_most: float | None = None,
) -> T:
    metadata = {"meaning": meaning, "choices": choices, "at_least": at_least, "at_most": at_most}
    return field(default=default, metadata=metadata)  # a Field, as dataclass wants


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The decoder and its attention; letters as in the paper (NSA, section 3)."""

    decoder: str = _setting("tiny", "tiny: fc1-SiLU-fc2 MLP; modern: SwiGLU", choices=("tiny", "modern"))
    vocab: int = _setting(256, "number of token ids; 256 = bytes", at_least=2)
    dim: int = _setting(128, "width of the residual stream", at_least=1)
    n_layers: int = _setting(4, "number of decoder blocks", at_least=1)
    n_heads: int = _setting(8, "query heads H", at_least=1)
    n_kv_groups: int = _setting(2, "key/value heads G; each serves H/G query heads", at_least=1)
    d_k: int = _setting(16, "width of a query or key head; even, for the rotary embedding", at_least=2)
    d_v: int = _setting(16, "width of a value head", at_least=1)
    l: int = _setting(16, "tokens in a compression block (Eq. 7)", at_least=1)  # noqa: E741 - the paper's letter
    d: int = _setting(8, "stride between compression blocks (Eq. 7)", at_least=1)
    l_slc: int = _setting(16, "tokens in a selection block, l' (Eq. 9)", at_least=1)
    n: int = _setting(6, "selected blocks per query: 1 initial and 2 local among them (Eq. 11)", at_least=3)
    w: int = _setting(64, "keys in the sliding window, the query's own included", at_least=1)
    attention: str = _setting(
        "nsa",
        "nsa; dense: full causal attention, the control; legacy-sequential: nsa in a Python loop over tokens",
        choices=("nsa", "dense", "legacy-sequential"),
    )
    phi: str = _setting("mlp", "how a block becomes one key: a learned MLP, or its mean", choices=("mlp", "mean"))
    branches: str = _setting(
        "all", "isolate one branch: only it is built, computed and trained", choices=("all", "cmp", "slc", "win")
    )
    gate: str = _setting(
        "learned",
        "learned sigmoids; uniform: 1/3 each; cmp|slc|win: one-hot, the other branches still computed",
        choices=("learned", "uniform", "cmp", "slc", "win"),
    )
    gate_grad: bool = _setting(default=True, meaning="let gradients reach the gate")
    share_kv: bool = _setting(default=False, meaning="one key/value projection for the three branches, not one each")
    rope_base: float = _setting(10000.0, "base of the rotary frequencies", at_least=1.0)
    rope_scale: float = _setting(1.0, "positions are divided by this before rotation", at_least=1e-6)
    tied_head: bool = _setting(default=False, meaning="use the embedding as the output head")

    @property
    def layout(self) -> BlockLayout:
        """The block geometry of this model."""
        return BlockLayout(l=self.l, d=self.d, l_slc=self.l_slc, n=self.n, w=self.w)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig:
    """Which implementation runs each operator; ``auto`` lets the registry choose and say why."""

    policy: str = _setting(
        "exact",
        "exact: a named kernel that cannot run here is an error; auto: it is replaced, with the reason recorded",
        choices=("exact", "auto"),
    )
    compressed: str = _setting("auto", "compressed branch")
    scores: str = _setting("auto", "importance scores and block selection")
    selected: str = _setting("auto", "selected branch")
    window: str = _setting("auto", "sliding-window branch")
    combine: str = _setting("auto", "gated sum of the branches")
    sdpa: str = _setting(
        "any", "which backends torch's own attention may use", choices=("any", "no-flash", "flash-only")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run."""

    steps: int = _setting(5, "optimizer steps", at_least=1)
    seq_len: int = _setting(256, "tokens in a sequence", at_least=1)
    batch_size: int = _setting(1, "sequences in a micro-batch, all ranks together", at_least=1)
    accumulate: int = _setting(1, "micro-batches whose gradients are averaged into one step", at_least=1)
    lr: float = _setting(3e-3, "learning rate, the largest of the schedule", at_least=0.0)
    schedule: str = _setting(
        "constant", "learning rate after warm-up: constant, or a cosine to zero", choices=("constant", "cosine")
    )
    warmup_steps: int = _setting(0, "steps over which the learning rate rises from zero", at_least=0)
    weight_decay: float = _setting(0.01, "AdamW weight decay of matrices", at_least=0.0)
    grad_clip: float = _setting(1.0, "largest gradient norm; 0 turns clipping off", at_least=0.0)
    seed: int = _setting(1337, "seeds weights and data", at_least=0)
    data: str = _setting(
        "bytes",
        "bytes of the Python standard library's sources; uniform random ids (synthetic); the text in train.data_path "
        "(local); FineWeb-Edu, streamed",
        choices=("bytes", "synthetic", "local", "fineweb-edu"),
    )
    data_path: str = _setting(
        "",
        "local: a text or JSONL file, or a folder of them; fineweb-edu: another dataset to stream, or a folder of "
        ".parquet or .jsonl files",
    )
    documents: bool = _setting(
        default=False,
        meaning="attend within documents only: positions, blocks and windows begin anew with each; a micro-batch is "
        "one packed row",
    )
    tokenizer: str = _setting("byte", "one byte, one token; or GPT-2's, by tiktoken", choices=("byte", "gpt2"))
    tokenizer_path: str = _setting("", "GPT-2's ranks, a .tiktoken file; fetched with remote data if empty")
    shards: int = _setting(0, "disjoint parts that a stream is read in; 0: one per process", at_least=0)
    prefetch: int = _setting(2, "steps whose data a stream reads ahead", at_least=1)
    loader_timeout_s: float = _setting(60.0, "how long a step waits for a stream's data", at_least=0.01)
    synthetic_on_fail: bool = _setting(
        default=False, meaning="when a rank cannot read its data, all go on with random ids, and every line says so"
    )
    eval_every: int = _setting(0, "steps between losses on held-out data, in val.csv; 0: none", at_least=0)
    eval_batches: int = _setting(4, "batches that such a loss is the mean of", at_least=1)
    val_path: str = _setting("", "held-out text; bytes and synthetic have their own")
    threads: int = _setting(1, "CPU threads inside an operator; 0 leaves torch's choice", at_least=0)
    precision: str = _setting("fp32", "type of the model's arithmetic", choices=("fp32", "bf16", "fp16"))
    precision_mode: str = _setting(
        "autocast",
        "autocast: weights stay fp32; pure: weights, gradients and optimizer state in train.precision too",
        choices=("autocast", "pure"),
    )
    device: str = _setting("cpu", "where the model runs; auto: a GPU if there is one", choices=("cpu", "cuda", "auto"))
    checkpointing: str = _setting(
        "none",
        "recompute decoder blocks in backward to save memory: by torch's reentrant or nonreentrant way; selective "
        "keeps the selected blocks' numbers and the attention outputs; block is nonreentrant by its earlier name",
        choices=("none", "block", "reentrant", "nonreentrant", "selective"),
    )
    checkpoint_layers: str = _setting("", "which blocks are recomputed, a:b without b; all if empty")
    compile: str = _setting(
        "off",
        "torch.compile of each decoder block: by inductor, or aot_eager, which generates no code",
        choices=("off", "inductor", "aot_eager"),
    )
    cuda_graphs: str = _setting(
        "off",
        "blocks: capture each decoder block's forward and backward once, for the run's one shape, and replay them; the "
        "host then launches a tenth as often",
        choices=("off", "blocks"),
    )
    deterministic: bool = _setting(
        default=False, meaning="the same bits in every run on a GPU too, where faster kernels add in any order"
    )
    detect_anomaly: bool = _setting(default=False, meaning="torch's anomaly mode: slow, names the faulty operator")
    trace_grads: bool = _setting(default=False, meaning="announce every parameter's gradient as it comes")
    trace_modules: bool = _setting(default=False, meaning="announce every module whose backward begins, in order")
    trace_buckets: bool = _setting(default=False, meaning="announce every bucket of gradients that ddp averages")
    census: int = _setting(0, "first steps whose autograd graph and waits for the device are counted", at_least=0)
    mem_every: int = _setting(0, "steps between mem_step<n>.txt and .json; 0: none but the first", at_least=0)
    tensorboard: bool = _setting(default=True, meaning="write curves for TensorBoard where it is installed")
    liveness_s: float = _setting(2.0, "seconds between the lines of liveness_rank<r>.jsonl; 0: none", at_least=0.0)
    out_dir: str = _setting("", "where the run writes its files and checkpoints; nothing is written if empty")
    save_every: int = _setting(0, "steps between checkpoints; 0 saves none", at_least=0)
    resume: bool = _setting(default=False, meaning="continue from the newest checkpoint in train.out_dir, if any")
    log_every: int = _setting(1, "steps between printed lines; one comes at least every 5 s", at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """How several processes train one model. The switches from ``find_unused_parameters`` on are DDP's own."""

    mode: str = _setting(
        "single",
        "single process; ddp; fsdp: fully_shard; fsdp1: FullyShardedDataParallel; manual: average gradients by hand",
        choices=("single", "ddp", "fsdp", "fsdp1", "manual"),
    )
    world: int = _setting(0, "how many processes must train together; 0: as many as were started", at_least=0)
    backend: str = _setting("auto", "auto: nccl on a GPU, gloo on a CPU", choices=("auto", "gloo", "nccl"))
    timeout_s: float = _setting(600.0, "how long a rank waits for the others before it gives up", at_least=1.0)
    allow_single: bool = _setting(default=False, meaning="let a parallel mode run in one process")
    allow_known_bad: bool = _setting(
        default=False, meaning="run combinations that are known to fail, to reproduce the failure"
    )
    find_unused_parameters: bool = _setting(default=False, meaning="look for parameters without a gradient")
    static_graph: bool = _setting(default=False, meaning="promise that every step has the same graph")
    broadcast_buffers: bool = _setting(default=True, meaning="copy rank 0's buffers before every forward")
    gradient_as_bucket_view: bool = _setting(default=False, meaning="gradients are views into the buckets")
    bucket_cap_mb: int = _setting(25, "gradients reduced together, MiB", at_least=1)
    compress: str = _setting("none", "type of the gradients on the wire", choices=("none", "bf16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPath:
    """One setting: its dotted path and what it may hold."""

    path: str
    type: type[bool] | type[int] | type[float] | type[str]
    default: Value
    choices: tuple[Value, ...]
    at_least: float | None
    at_most: float | None
    meaning: str

    def checked(self, value: object) -> Value:
        """Return ``value`` in this setting's type, or raise ConfigError saying what would fit."""
        if self.type is float and type(value) is int:
            value = float(value)
        if type(value) is not self.type or (isinstance(value, float) and value != value):
            raise ConfigError(f"{self.path} = {value!r} is {type(value).__name__}; it must be {self.type.__name__}")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{self.path} = {value!r} is not a choice; {suggestion(str(value), self.choices)}")
        if isinstance(value, int | float) and self.at_least is not None and value < self.at_least:
            raise ConfigError(f"{self.path} = {value!r} is too small; use {self.at_least:g} or more")
        if isinstance(value, int | float) and self.at_most is not None and value > self.at_most:
            raise ConfigError(f"{self.path} = {value!r} is too large; use {self.at_most:g} or less")
        return value  # its type was compared above

    def parsed(self, text: str) -> Value:
        """Read ``text`` as this setting's type, as from a command line or the environment."""
        if self.type is bool:
            words = {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }
            if text.strip().lower() not in words:
                raise ConfigError(f"{self.path} = {text!r} is not a yes or no; write true or false")
            return words[text.strip().lower()]
        try:
            return self.checked(self.type(text))
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{self.path} = {text!r} is not {self.type.__name__}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that decides what a run computes. Build it once, hand it down."""

    model: ModelConfig = field(default_factory=ModelConfig)
    kernels: KernelConfig = field(default_factory=KernelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def __post_init__(self) -> None:
        for path, setting in _PATHS.items():
            setting.checked(self.value(path))
        check_fit(self.model)
        _check_precision(self)
        _check_trace(self)
        _check_recomputation(self)
        _check_compile(self)
        _check_graphs(self)
        _check_documents(self)

    @staticmethod
    def paths() -> Mapping[str, ConfigPath]:
        """Every setting by its dotted path, in the order of the file."""
        return _PATHS

    @staticmethod
    def path(name: str) -> ConfigPath:
        """The setting called ``name``; ConfigError with the nearest known name otherwise."""
        if name not in _PATHS:
            raise ConfigError(f"unknown setting {name!r}; {suggestion(name, _PATHS)}")
        return _PATHS[name]

    def value(self, path: str) -> Value:
        """The value at a dotted path."""
        section, _, name = self.path(path).path.partition(".")
        return getattr(getattr(self, section), name)

    def with_value(self, path: str, value: object) -> RunConfig:
        """A copy that differs at one dotted path only."""
        section, _, name = self.path(path).path.partition(".")
        changed = dataclasses.replace(getattr(self, section), **{name: self.path(path).checked(value)})
        return dataclasses.replace(self, **{section: changed})

    def with_values(self, changes: Mapping[str, object]) -> RunConfig:
        """A copy with several paths changed at once, so that values which only fit together can move together."""
        tree: dict[str, Any] = self.to_mapping()
        for path, value in changes.items():
            section, _, name = self.path(path).path.partition(".")
            tree[section][name] = value
        return self.from_mapping(tree)

    def to_mapping(self) -> dict[str, dict[str, Value]]:
        """Nested plain dicts, every setting spelled out."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The tree as indented JSON, every setting spelled out."""
        return json.dumps(self.to_mapping(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Read what ``to_json`` wrote; missing settings take their defaults."""
        try:
            tree = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"run configuration is not JSON: {error}; write it with RunConfig.to_json") from error
        return cls.from_mapping(tree)

    @classmethod
    def from_mapping(cls, tree: Mapping[str, object]) -> RunConfig:
        """Build from nested mappings; a key that is no setting is an error, never ignored."""
        if not hasattr(tree, "items"):
            raise ConfigError(f"a run configuration is a mapping of sections, got {type(tree).__name__}")
        sections: dict[str, Any] = {}
        for section, settings in tree.items():
            if section not in _SECTIONS:
                raise ConfigError(f"unknown section {section!r}; {suggestion(section, _SECTIONS)}")
            if not hasattr(settings, "items"):
                raise ConfigError(f"section {section!r} must be a mapping, got {type(settings).__name__}")
            values = {
                name: cls.path(f"{section}.{name}").checked(value) for name, value in settings.items()
            }  # checked above
            sections[section] = _SECTIONS[section](**values)
        return cls(**sections)


def suggestion(word: str, known: Iterable[object]) -> str:
    """``did you mean 'x'?`` when a known word is near, the list of known words otherwise."""
    words = [str(k) for k in known]
    tails = {w.rpartition(".")[2]: w for w in words}
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6) or [
        tails[t] for t in difflib.get_close_matches(word.rpartition(".")[2], tails, n=1, cutoff=0.6)
    ]
    return f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(words)


def check_fit(model: ModelConfig) -> None:
    """Raise ConfigError unless heads, groups, widths and blocks fit together."""
    if model.n_heads % model.n_kv_groups:
        raise ConfigError(
            f"model.n_heads = {model.n_heads} is not a multiple of model.n_kv_groups = {model.n_kv_groups}; "
            "every key/value head serves the same number of query heads"
        )
    if model.d_k % 2:
        raise ConfigError(f"model.d_k = {model.d_k} is odd; the rotary embedding turns pairs, so use an even width")
    _ = model.layout  # raises when l, d and l_slc do not fit


def layer_range(config: RunConfig) -> range:
    """The decoder blocks that ``train.checkpoint_layers`` names; all when it is empty.

    Raises:
        ConfigError: not ``a:b`` with 0 <= a < b <= model.n_layers.
    """
    text, n_layers = config.train.checkpoint_layers, config.model.n_layers
    first, colon, end = text.partition(":") if text else ("0", ":", str(n_layers))
    is_number = first.isascii() and first.isdecimal() and end.isascii() and end.isdecimal()
    if not (colon and is_number and 0 <= int(first) < int(end) <= n_layers):
        raise ConfigError(
            f"train.checkpoint_layers = {text!r} is no range of blocks; write a:b with 0 <= a < b <= {n_layers}, "
            "b itself left out"
        )
    return range(int(first), int(end))


def _check_trace(config: RunConfig) -> None:
    if config.train.trace_grads and config.parallel.mode in ("fsdp", "fsdp1"):
        raise ConfigError(
            f"train.trace_grads with parallel.mode = {config.parallel.mode!r}: sharded gradients do not come one "
            "parameter at a time; the blocks are announced anyway"
        )
    if config.train.trace_buckets and config.parallel.mode not in ("ddp", "single"):
        raise ConfigError(
            f"train.trace_buckets with parallel.mode = {config.parallel.mode!r}: only ddp averages gradients in buckets"
        )


def _check_precision(config: RunConfig) -> None:
    train, mode = config.train, config.parallel.mode
    if train.precision != "fp16":
        return
    if train.precision_mode == "pure":
        raise ConfigError(
            "train.precision = 'fp16' with train.precision_mode = 'pure': fp16 weights cannot be unscaled after the "
            "loss scale, and small gradients vanish without it; use autocast, or bf16"
        )
    if mode in ("fsdp", "fsdp1"):
        raise ConfigError(
            f"train.precision = 'fp16' with parallel.mode = {mode!r}: each rank would choose its own loss scale from "
            "its own shard; use bf16, or parallel.mode = 'ddp'"
        )


def _check_recomputation(config: RunConfig) -> None:
    parallel, kind = config.parallel, config.train.checkpointing
    layer_range(config)
    is_ready_twice = kind == "reentrant" and parallel.mode == "ddp" and parallel.find_unused_parameters
    if is_ready_twice and not parallel.static_graph and not parallel.allow_known_bad:
        raise ConfigError(
            "train.checkpointing = 'reentrant' with parallel.find_unused_parameters under ddp ends in 'marked as ready "
            "twice': the search for unused parameters sees none of those inside a recomputed block, and calls them "
            "ready before their gradients come. Use nonreentrant, or parallel.static_graph, or no search; "
            "parallel.allow_known_bad runs it as it is"
        )


def _check_compile(config: RunConfig) -> None:
    train = config.train
    if train.compile == "off":
        return
    inside = {
        "train.checkpointing = 'selective'": train.checkpointing == "selective",
        "train.trace_modules": train.trace_modules,
        "train.census": train.census > 0,
    }
    for name in (name for name, is_set in inside.items() if is_set):
        raise ConfigError(
            f"train.compile = {train.compile!r} with {name}: what happens inside a compiled block cannot be seen "
            "operator by operator; turn one of them off"
        )
    if config.model.attention == "legacy-sequential":
        raise ConfigError(
            f"train.compile = {train.compile!r} with model.attention = 'legacy-sequential': its loop over tokens would "
            "be compiled token by token; turn train.compile off"
        )


def _check_documents(config: RunConfig) -> None:
    train = config.train
    if not train.documents:
        return
    reasons = {
        f"train.compile = {train.compile!r}": (
            train.compile != "off",
            "the documents of every step have other lengths, and a compiled block is compiled for one shape",
        ),
        f"train.cuda_graphs = {train.cuda_graphs!r}": (
            train.cuda_graphs != "off",
            "the documents of every step have other lengths, and a graph replays one shape",
        ),
        "model.attention = 'legacy-sequential'": (
            config.model.attention == "legacy-sequential",
            "its loop over tokens takes one document; use nsa or dense",
        ),
    }
    for name, (is_set, reason) in reasons.items():
        if is_set:
            raise ConfigError(f"train.documents with {name}: {reason}")


def _check_graphs(config: RunConfig) -> None:
    train, mode = config.train, config.parallel.mode
    if train.cuda_graphs == "off":
        return
    unseen = "a replay runs no Python, so what happens inside a block cannot be seen; turn one of them off"
    reasons = {
        "train.device = 'cpu'": (train.device == "cpu", "only a GPU replays CUDA graphs; use train.device = 'cuda'"),
        f"train.checkpointing = {train.checkpointing!r}": (
            train.checkpointing != "none",
            "a graph keeps what its backward reads, whatever is recomputed; use train.checkpointing = 'none'",
        ),
        f"parallel.mode = {mode!r}": (
            mode in ("fsdp", "fsdp1"),
            "a graph reads weights where they were when it was captured, and sharded ones are gathered somewhere else "
            "in every step; use ddp",
        ),
        f"train.compile = {train.compile!r}": (
            train.compile != "off",
            "compiled blocks have not been captured in any test; turn one of them off",
        ),
        "kernels.window = 'flex'": (
            config.kernels.window == "flex",
            "torch compiles it in its first call, and it has not been captured in any test; use another",
        ),
        "model.attention = 'legacy-sequential'": (
            config.model.attention == "legacy-sequential",
            "its loop over tokens waits for the device, which a capture cannot; use nsa or dense",
        ),
        "train.trace_modules": (train.trace_modules, unseen),
        "train.census": (train.census > 0, unseen),
        "train.detect_anomaly": (train.detect_anomaly, unseen),
    }
    for name, (is_set, reason) in reasons.items():
        if is_set:
            raise ConfigError(f"train.cuda_graphs = {train.cuda_graphs!r} with {name}: {reason}")


_SECTIONS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "kernels": KernelConfig,
    "train": TrainConfig,
    "parallel": ParallelConfig,
}
_PATHS: dict[str, ConfigPath] = {
    f"{section}.{f.name}": ConfigPath(
        path=f"{section}.{f.name}",
        type=type(f.default),  # pyrefly: ignore[bad-argument-type] - every setting has a default
        default=f.default,  # pyrefly: ignore[bad-argument-type] - every setting has a default
        **f.metadata,
    )
    for section, cls in _SECTIONS.items()
    for f in dataclasses.fields(cls)
}
