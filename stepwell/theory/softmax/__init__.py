"""Softmax attention on several regressions at once, by subject.

- `losses`: what attention with given weights costs: to leading order, to first order, exactly, and of linear attention.
- `limits`: where training ends: the limit of the flow, and the best that a single head can do.
- `flow`: time courses: the flow of the eigenvalues, its reduced equations, and its end.
- `emergence`: when tasks emerge, and how long it lasts.
- `allocation`: which head serves which task, and how tasks share heads.
- `bayes`: what can be known at all: the risk of the posterior mean and of ridge regression.
- `bounds`: lower bounds on the loss of any weights, and how a budget of attention is best divided.
- `lengths`: the loss on contexts of other lengths than that of training.
- `saturation`: where softmax weights concentrate on few tokens, and leading order ends.
- `nonlinear`: nonlinear targets, in Hermite coefficients.
- `conventions`: the numbers of a task that formulas read, and the keywords of training.

After Chen, Sheen, Wang and Yang, "Training Dynamics of Multi-Head Softmax Attention for In-Context Learning"
(arXiv 2402.19442). The paper's full text could not be consulted, so the formulas are derived anew, and three of its
conventions are inferred from captions: that strengths are those of one coordinate, that the flow is that of the plain
squared loss, and the constant of its lower bound.

Weights are arrays (head, task). A loss is given for each task; the loss is their sum. `conventions.Training` has the
keywords of the flow.
"""

from . import allocation as allocation
from . import bayes as bayes
from . import bounds as bounds
from . import conventions as conventions
from . import emergence as emergence
from . import flow as flow
from . import lengths as lengths
from . import limits as limits
from . import losses as losses
from . import nonlinear as nonlinear
from . import saturation as saturation
