"""All methods in one table, for ``coresift strategies`` and the page "All methods"."""

from typing import NamedTuple

HEADER = ("name", "needs", "cost", "weights", "what it chooses", "paper")


class Method(NamedTuple):
    """One row of the table. Costs are for n samples in d columns and k picks; a pass runs the model over all data."""

    name: str
    needs: str
    cost: str
    weights: str
    line: str
    paper: str


_WORDS = {
    "=": "n/k each",
    "scores": "labels, model, scores",
    "proxy": "5 epochs, once, shared",
    "picks": "O(n d) a pick, once",
    "ours": "this project",
    "Craig": "Mirzasoleiman et al. 2020",
    "Match": "Killamsetty et al. 2021",
}
_ROWS = """
FULL | - | - | 1 | all samples | -
RANDOM | - | - | = | one uniform draw, kept | -
ADAPTIVE-RANDOM | - | - | = | a new uniform draw at every selection | -
STRATIFIED | labels | - | = | one uniform draw within each class, kept | -
RS2 | - | - | = | uniform turns: none returns before all others were served | Okanovic et al. 2024
RBF | - | one fit | unbiased | draws by the sensitivities of the inputs | Tukan et al. 2023
COVER | labels | one k-means | cell sizes | samples nearest to k-means centres, kept | ours
FIXED-CORESET | labels | kernel regressions, once | = | what a kernel proxy does not explain yet, kept | ours
K-CENTER | - | picks | = | the sample farthest from those picked | Sener, Savarese 2018
HERDING | labels | picks | = | the sample that brings the mean nearest to that of all | Welling 2009
FACILITY-LOCATION | labels | neighbours, greedy, once | samples represented | medoids of the features | Wei et al. 2015
GRAPH-CUT | labels | picks | = | like all samples, unlike each other | Iyer et al. 2021
EL2N | scores | proxy | = | the largest errors of the predicted probabilities | Paul et al. 2021
GRAND | scores | proxy | = | the largest gradients of the last layer | Paul et al. 2021
FORGETTING | scores | proxy | = | forgotten most often while training | Toneva et al. 2019
MARGIN | scores | proxy | = | the smallest gap between the two likeliest classes | Coleman et al. 2020
ENTROPY | scores | proxy | = | the largest entropy of the prediction | Coleman et al. 2020
LEAST-CONFIDENCE | scores | proxy | = | the smallest probability of the likeliest class | Coleman et al. 2020
AUM | scores | proxy | = | the largest mean margins: no labels that look wrong | Pleiss et al. 2020
CCS | scores | proxy | = | all degrees of hardness alike, the hardest tenth cut | Zheng et al. 2023
MODERATE | scores | proxy | = | at the median distance from the class centre | Xia et al. 2023
CRAIG | labels, model | 1 pass, greedy | samples represented | medoids of the gradients, per class | Craig
CRAIGPB | labels, model | 1 pass, greedy | the batch's | the same, with mini-batches as items | Craig
GRADMATCH | labels, model | 1 pass, greedy | of the match | a weighted sum of gradients like that of all | Match
GRADMATCHPB | labels, model | 1 pass, greedy | the batch's | the same, with mini-batches as items | Match
GLISTER | labels, model, validation | 1 pass, greedy | 1 | steps that reduce the validation loss | Match
ADAPTIVE-CORESET | labels, model | a pass over a pool | unbiased, tempered | draws by gradient norms | ours
ADAPTIVE-CORESET-SEEN | labels, model | - | the same | draws by the norms that training saw | ours
LOSSLESS | labels, model | - | 1 or 2 | all with large gradients, half of the others | ours
INFOBATCH | labels, model | - | 1 or 2 | all with large losses, half of the others | Qin et al. 2024
TRIM | labels, model | - | 1 | without the highest losses, if labels seem wrong | ours
AUTO | labels, model | - | times served | looks at the data and at training, then does what pays | ours
...-WARM | the same | the same | the same | all data first, then the subset of the method | Match
"""
METHODS = tuple(
    Method(*(_WORDS.get(cell.strip(), cell.strip()) for cell in row.split("|"))) for row in _ROWS.strip().splitlines()
)


def markdown_table() -> str:
    """The table in Markdown."""
    rows = (HEADER, ("---",) * len(HEADER), *METHODS)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
