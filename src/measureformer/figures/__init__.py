"""Figures as data, and how they are drawn."""

from measureformer.figures.figure import Figure as Figure
from measureformer.figures.figure import Series as Series
from measureformer.figures.save import save_figure as save_figure
