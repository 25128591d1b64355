"""The recurrent nets and transformers of torch.nn."""

from torch import nn
from torch.export import Dim

from zoo_spec import Case, In, Spec, ids, model

AUTO = Dim.DYNAMIC


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(60, 24)
        self.rnn = kind(24, 20, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(40, 7)

    def forward(self, tokens):
        out, state = self.rnn(self.embed(tokens))
        return self.head(out), state


def recurrent(name, kind, *shapes, dynamic=None):
    @model("nn", name)
    def spec():
        return Spec(Recurrent(kind), [Case((ids(*s, high=60),)) for s in shapes],
                    f"Embedding(60, 24), {kind.__name__}(24, 20, 2 layers, bidirectional, batch_first), Linear(40, 7)",
                    dynamic)


recurrent("lstm", nn.LSTM, (2, 11), (3, 11), dynamic=({0: AUTO},))
recurrent("gru", nn.GRU, (2, 9))


@model("nn", "TransformerEncoder")
def encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    m = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Spec(m, [Case((In((b, s, 32)),)) for b, s in ((2, 9), (3, 5))],
                "TransformerEncoder(TransformerEncoderLayer(32, 4, 48, batch_first), 2)", {"src": {0: AUTO, 1: AUTO}})


@model("nn", "Transformer")
def transformer():
    m = nn.Transformer(32, 4, 2, 2, 48, batch_first=True)
    return Spec(m, [Case((In((b, s, 32)), In((b, t, 32)))) for b, s, t in ((2, 9, 6), (3, 5, 7))],
                "Transformer(32, 4, 2, 2, 48, batch_first)", {"src": {0: AUTO, 1: AUTO}, "tgt": {0: AUTO, 1: AUTO}})
