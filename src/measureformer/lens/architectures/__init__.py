"""Families of pretrained models, a small file each, as maps between measures."""

from measureformer.lens.architectures import albert as albert
from measureformer.lens.architectures import bert as bert
from measureformer.lens.architectures import gpt2 as gpt2
from measureformer.lens.architectures import llama as llama
from measureformer.lens.architectures import tabpfn as tabpfn
from measureformer.lens.architectures.base import Anatomy as Anatomy
from measureformer.lens.architectures.base import Block as Block
from measureformer.lens.architectures.base import Family as Family
from measureformer.lens.architectures.base import Half as Half
from measureformer.lens.architectures.base import family_of as family_of
from measureformer.lens.architectures.base import known as known
from measureformer.lens.architectures.base import register as register
from measureformer.lens.architectures.tabpfn import Table as Table
