"""Dates of 191 explosions in British coal mines that killed ten or more, 15 March 1851 to 22 March 1962.

Days from one to the next, as published: Maguire, Pearson and Wynn 1952, "The time intervals between industrial
accidents", as corrected and extended by Jarrett 1979, "A note on the intervals between coal-mining disasters".
"""

import datetime

import numpy as np

FIRST = datetime.date(1851, 3, 15)

# fmt: off
DAYS = (
    157, 123, 2, 124, 12, 4, 10, 216, 80, 12, 33, 66, 232, 826, 40, 12, 29, 190, 97, 65, 186, 23, 92, 197, 431, 16, 154,
    95, 25, 19, 78, 202, 36, 110, 276, 16, 88, 225, 53, 17, 538, 187, 34, 101, 41, 139, 42, 1, 250, 80, 3, 324, 56, 31,
    96, 70, 41, 93, 24, 91, 143, 16, 27, 144, 45, 6, 208, 29, 112, 43, 193, 134, 420, 95, 125, 34, 127, 218, 2, 0, 378,
    36, 15, 31, 215, 11, 137, 4, 15, 72, 96, 124, 50, 120, 203, 176, 55, 93, 59, 315, 59, 61, 1, 13, 189, 345, 20, 81,
    286, 114, 108, 188, 233, 28, 22, 61, 78, 99, 326, 275, 54, 217, 113, 32, 388, 151, 361, 312, 354, 307, 275, 78, 17,
    1205, 644, 467, 871, 48, 123, 456, 498, 49, 131, 182, 255, 194, 224, 566, 462, 228, 806, 517, 1643, 54, 326, 1312,
    348, 745, 217, 120, 275, 20, 66, 292, 4, 368, 307, 336, 19, 329, 330, 312, 536, 145, 75, 364, 37, 19, 156, 47, 129,
    1630, 29, 217, 7, 18, 1358, 2366, 952, 632,
)
# fmt: on


def dates() -> list[datetime.date]:
    """The 191 days, in their order."""
    return [FIRST + datetime.timedelta(int(days)) for days in np.cumsum((0, *DAYS))]


def years() -> np.ndarray:
    """The days as years with their fraction [191], float64: 1851.2 is in March."""
    first = [datetime.date(day.year, 1, 1).toordinal() for day in dates()]
    sizes = [datetime.date(day.year + 1, 1, 1).toordinal() - start for day, start in zip(dates(), first, strict=True)]
    return np.array([d.year + (d.toordinal() - f + 0.5) / s for d, f, s in zip(dates(), first, sizes, strict=True)])
