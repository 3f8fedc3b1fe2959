"""Families of pretrained models, a small file each, as maps between measures."""

from measureformer.lens.families import albert as albert
from measureformer.lens.families import bert as bert
from measureformer.lens.families import gpt2 as gpt2
from measureformer.lens.families import llama as llama
from measureformer.lens.families import tabpfn as tabpfn
from measureformer.lens.families.base import Anatomy as Anatomy
from measureformer.lens.families.base import Block as Block
from measureformer.lens.families.base import Family as Family
from measureformer.lens.families.base import Half as Half
from measureformer.lens.families.base import family_of as family_of
from measureformer.lens.families.base import known as known
from measureformer.lens.families.base import register as register
from measureformer.lens.families.tabpfn import Table as Table
