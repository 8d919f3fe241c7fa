"""How fast Stepwell is, beside what it is measured against. `python -m benchmarks` prints the table; see README.md."""

BENCHMARKS = {
    "moments_descent": "gradient descent on moments, against PyTorch running attention over every token",
    "cubic_mlp": "gradient descent on cubic moments, against PyTorch training the network on precomputed features",
    "softmax_gradient": "gradient descent of softmax attention, against PyTorch, and on reduced sequences",
    "spectral": "the spectral flow of softmax attention, by theory and by training",
    "flow": "gradient flow to convergence, at a large and at a tiny start",
    "flow_solvers": "solvers of the gradient flow at equal accuracy, and an ensemble beside a loop",
    "sampling": "drawing sequences, and standard normals in a compiled loop, against JAX",
    "streaming": "moments of more sequences than one would hold: time, memory, and what limits them",
    "population_scale": "a step at infinitely many sequences as the dimension grows, and where moments end",
    "ensembles": "a thousand runs as one program, against one after another",
    "schedules": "the drop schedules of many starts in one call, against a call for each",
    "natives": "every kernel on and off, beside what a library does, and what a user waits for",
    "store": "the store of runs: adding, asking and listing, beside a file for each run",
    "sweep": "sweeps of thousands of runs, in one process and on workers, beside a loop and a file for each run",
    "drag": "a slider dragged in a browser, from input to paint: Bokeh beside Dash",
    "explorer": "the explorer in a browser: drag to paint, frames while it plays, and fifty pages at once",
    "whole_command": "commands from start to finish, as typed",
}
"""Each is a module of that name with `run(quick)`, which yields rows."""
