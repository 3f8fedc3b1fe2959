"""In-context learning: tasks, models that learn them from a prompt, baselines, and closed forms."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.incontext import baselines as baselines
from measureformer.incontext import bayes as bayes
from measureformer.incontext import linear as linear
from measureformer.incontext import tasks as tasks
from measureformer.incontext.error import epsilon as epsilon
from measureformer.incontext.error import error_curve as error_curve
from measureformer.incontext.language import LanguageModel as LanguageModel
from measureformer.incontext.measure_laws import measure_laws as measure_laws
from measureformer.incontext.models import InContextModel as InContextModel
from measureformer.incontext.models import examples_measure as examples_measure
from measureformer.incontext.observe import observables as observables
from measureformer.incontext.retrieval import retrieval as retrieval
from measureformer.incontext.retrieval import train_reader as train_reader
from measureformer.incontext.saved import load_learner as load_learner
from measureformer.incontext.task import Task as Task
from measureformer.incontext.train import train_learner as train_learner

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
