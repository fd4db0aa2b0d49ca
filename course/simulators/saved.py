"""One idea: the backward pass needs certain tensors of the forward pass; list them with their shapes and sum.

Which ones are kept follows Korthikanti and others 2022 (arXiv 2205.05198), extended to grouped queries, three-matrix
MLPs and flash attention. Each tensor is split over tensor-parallel ranks by its own rule, see `_Rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

from course.simulators.shapes import ShapeLike, Tensor, layer_norms, mlp_inputs, one_of, part


@dataclass(frozen=True)
class Execution:
    """How a layer is run, as far as it decides what is kept for the backward pass.

    `flash_attention` keeps no scores; `dropout` keeps a mask of one byte an element; `recompute` is none, selective
    (the attention core) or full (a layer keeps its input alone); `tensor` ranks share each layer; `sequence_parallel`
    splits by tokens what lies between the split matrices; `tensor_regather` keeps only this rank's tokens of a matrix's
    input and gathers the rest again in the backward. `row_statistics` also counts the fp32 numbers kept for each row
    (of norms, and of flash attention), which published counts leave out.
    """

    flash_attention: bool = True
    dropout: bool = False
    recompute: str = "none"
    tensor: int = 1
    sequence_parallel: bool = False
    tensor_regather: bool = True
    row_statistics: bool = False


def saved_in_layer(
    model: ShapeLike, sequences: int, sequence_length: int, execution: Execution | None = None
) -> list[Tensor]:
    """What one layer keeps on one rank from its forward to its backward pass, in 16-bit activations.

    The activation function of the MLP is one kernel: it keeps its inputs and makes what is between them again.

    >>> from course.simulators.shapes import Shape, total_bytes
    >>> gpt = Shape(96, 12288, 96, 96, 128, 49152, 51200, gated_mlp=False)
    >>> classic = Execution(flash_attention=False, dropout=True)
    >>> total_bytes(saved_in_layer(gpt, 1, 2048, classic)) / (2048 * 12288)  # 34 + 5 a s / h, Korthikanti 2022
    114.0
    """
    how = execution or Execution()
    rows = _Rows(sequences * sequence_length, how)
    if how.recompute == "full":
        return [rows.between("layer input", model.hidden)]
    heads = part(model.heads, how.tensor, "heads")
    query = heads * model.head_size
    key = part(model.kv_heads, how.tensor, "kv_heads") * model.head_size
    ffn = part(model.ffn, how.tensor, "ffn")
    norms = layer_norms(model)

    kept = [rows.between("attention norm input", model.hidden), rows.gathered("attention input", model.hidden)]
    if model.qk_norm != "none":
        kept += [rows.whole("query norm input", query), rows.whole("key norm input", key)]
    kept += [rows.whole("query", query), rows.whole("key", key), rows.whole("value", key)]
    if not how.flash_attention and how.recompute == "none":
        square = (sequences, heads, sequence_length, sequence_length)
        kept.append(Tensor("softmax output", square))
        if how.dropout:  # without it the softmax output itself is the factor of the values
            kept += [Tensor("attention dropout mask", square, 1), Tensor("attention dropout output", square)]
    kept.append(rows.whole("projection input", query))
    if len(norms) == 4:
        kept.append(rows.between("attention output norm input", model.hidden))
    if how.dropout:
        kept.append(rows.between("projection dropout mask", model.hidden, 1))
    if len(norms) > 1:
        if not model.parallel_block:  # there both norms read the layer's input, which is kept already
            kept.append(rows.between("mlp norm input", model.hidden))
        kept.append(rows.gathered("mlp input", model.hidden))
    kept += [rows.whole(f"{name} output", ffn) for name in mlp_inputs(model)]
    kept.append(rows.whole("down input", ffn))
    if len(norms) == 4:
        kept.append(rows.between("mlp output norm input", model.hidden))
    if how.dropout:
        kept.append(rows.between("mlp dropout mask", model.hidden, 1))
    if how.row_statistics:
        numbers = max(model.norm_size, 1)  # RMSNorm keeps 1 / rms, LayerNorm the mean as well
        kept += [rows.between(f"{name} statistics", numbers, 4) for name in norms]
        if model.qk_norm != "none":
            per_head = model.qk_norm == "head"
            kept.append(rows.whole("query norm statistics", numbers * (heads if per_head else 1), 4))
            kept.append(rows.whole("key norm statistics", numbers * (key // model.head_size if per_head else 1), 4))
        if how.flash_attention:
            kept.append(rows.whole("flash attention statistics", heads, 4))
    return kept


def saved_by_embedding(
    model: ShapeLike, sequences: int, sequence_length: int, execution: Execution | None = None
) -> list[Tensor]:
    """What the embedding keeps besides the token numbers: with dropout a mask, with a norm its input.

    >>> from course.simulators.shapes import Shape
    >>> saved_by_embedding(Shape(2, 8, 2, 1, 4, 16, 10), 1, 3, Execution(dropout=True))
    [Tensor(name='embedding dropout mask', shape=(3, 8), element_bytes=1)]
    """
    how = execution or Execution()
    rows = _Rows(sequences * sequence_length, how)
    kept = [rows.between("embedding norm input", model.hidden)] if model.embedding_norm else []
    return kept + ([rows.between("embedding dropout mask", model.hidden, 1)] if how.dropout else [])


def saved_by_head(
    model: ShapeLike,
    sequences: int,
    sequence_length: int,
    execution: Execution | None = None,
    logit_bytes: int = 4,
) -> list[Tensor]:
    """What the final norm, the head and the loss keep; a logit is counted once, in `logit_bytes`.

    >>> from course.simulators.shapes import Shape
    >>> [one.shape for one in saved_by_head(Shape(2, 8, 2, 1, 4, 16, 10), 1, 3, Execution(tensor=2))]
    [(3, 8), (3, 8), (3, 5)]
    """
    how = execution or Execution()
    rows = _Rows(sequences * sequence_length, how)
    kept = [rows.between("final norm input", model.hidden)] if model.final_norm else []
    vocabulary = part(model.vocabulary, how.tensor, "vocabulary")
    return [*kept, rows.gathered("head input", model.hidden), rows.whole("logits", vocabulary, logit_bytes)]


class _Rows:
    """Makes tensors of one row a token, each split over the tensor-parallel ranks by its own rule."""

    def __init__(self, tokens: int, how: Execution) -> None:
        one_of(how.recompute, "recompute", ("none", "selective", "full"))
        self.tokens = tokens
        self.own = part(tokens, how.tensor, "tokens") if how.sequence_parallel else tokens
        self.input = self.own if how.tensor_regather else tokens

    def between(self, name: str, width: int, element_bytes: int = 2) -> Tensor:
        """Norms, residuals and dropout: every rank does all tokens, or its own under sequence parallelism."""
        return Tensor(name, (self.own, width), element_bytes)

    def gathered(self, name: str, width: int) -> Tensor:
        """The input of a matrix split by columns: needed whole, kept whole or gathered again."""
        return Tensor(name, (self.input, width))

    def whole(self, name: str, width: int, element_bytes: int = 2) -> Tensor:
        """What lies inside the split matrices: all tokens, and `width` is already this rank's share."""
        return Tensor(name, (self.tokens, width), element_bytes)
