"""Random interleavings around the slots of an agent, against a model. On a fake Redis."""

from machine_slots import walk


def test_slots_are_dealt_out_in_order_and_none_is_lost():
    walk()
