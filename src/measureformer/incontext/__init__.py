"""In-context learning: tasks, models that learn them from a prompt, what they are compared with, and why."""

from measureformer.incontext import baselines as baselines
from measureformer.incontext import bayes as bayes
from measureformer.incontext import linear as linear
from measureformer.incontext import tasks as tasks
from measureformer.incontext._error import Curve as Curve
from measureformer.incontext._error import Estimate as Estimate
from measureformer.incontext._error import epsilon as epsilon
from measureformer.incontext._error import error_curve as error_curve
from measureformer.incontext._laws import MeasureLaws as MeasureLaws
from measureformer.incontext._laws import measure_laws as measure_laws
from measureformer.incontext._observe import observables as observables
from measureformer.incontext._observe import structure as structure
from measureformer.incontext._retrieval import Retrieval as Retrieval
from measureformer.incontext._retrieval import retrieval as retrieval
from measureformer.incontext._retrieval import train_reader as train_reader
from measureformer.incontext._train import Trained as Trained
from measureformer.incontext._train import Training as Training
from measureformer.incontext._train import train as train
from measureformer.incontext.blocks import Architecture as Architecture
from measureformer.incontext.language import Corpus as Corpus
from measureformer.incontext.language import LanguageModel as LanguageModel
from measureformer.incontext.models import InContextModel as InContextModel
from measureformer.incontext.models import examples_measure as examples_measure
from measureformer.incontext.models import sequence_measure as sequence_measure
from measureformer.incontext.optimizers import compare_optimizers as compare_optimizers
from measureformer.incontext.saved import load as load
