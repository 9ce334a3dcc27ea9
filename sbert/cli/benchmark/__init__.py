"""``sbert benchmark``: the speed of a model on this machine, compared with other libraries.

| file | about |
|---|---|
| ``command`` | the options, and what is printed and written |
| ``contenders`` | who is measured: this library with several settings, and other libraries |
| ``tasks`` | what a contender is asked to do |
| ``processes`` | each contender in a process of its own |
| ``measure`` | the measurement, in turns |
| ``workloads`` | the texts |
| ``ceiling`` | the maximum speed of the machine |
| ``precision`` | the recall of searches in low precision |
| ``show`` | the results as tables and as a chart |
"""
