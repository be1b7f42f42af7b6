"""The shells that complete command lines of `launch`."""

# How to install the script, by shell.
INSTALL = {
    "bash": (
        'in ~/.bashrc: eval "$(launch completion bash)"',
        "or, with the package bash-completion: "
        "launch completion bash > ~/.local/share/bash-completion/completions/launch",
    ),
    "zsh": (
        'in ~/.zshrc, after compinit: eval "$(launch completion zsh)"',
        "or launch completion zsh > ~/.zfunc/_launch, and in ~/.zshrc before compinit: fpath=(~/.zfunc $fpath)",
    ),
    "fish": ("launch completion fish > ~/.config/fish/completions/launch.fish",),
}
