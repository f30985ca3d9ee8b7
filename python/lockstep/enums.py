"""Enums of the C API: an int in C, a word of the enum in Python."""
from ctypes import c_int


class Enum(c_int):
    """Base of the enums in capi.py. A value is given by its word in either case ("sum" for LK_REDUCTION_SUM) or as a
    number, which some functions of the library return (lk_reduction_register)."""

    values = {}

    @classmethod
    def of(cls, value):
        """The number of a word."""
        if not isinstance(value, str):
            return int(value)
        if value.upper() not in cls.values:
            words = ", ".join(f'"{word.lower()}"' for word in cls.values)
            raise ValueError(f'{cls.__name__} has no value "{value}"; it has {words}')
        return cls.values[value.upper()]

    @classmethod
    def word(cls, number):
        """The word of a number, in lower case."""
        return next((word.lower() for word, value in cls.values.items() if value == number), str(number))
