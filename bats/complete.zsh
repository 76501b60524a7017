# complete.zsh TOOL LINE: types LINE into an interactive zsh with the completions of TOOL, and
# prints the words that zsh offers at its end, one per line. What zsh finds of its own completions is
# kept in $T for the next time.
zmodload zsh/zpty || exit 1
zpty shell zsh -f -i
# expect TEXT: waits until the shell has printed TEXT.
expect() { zpty -r shell answer "*$1*" && [[ $answer == *$1* ]] }
zpty -w shell 'PROMPT=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -d $T/zcompdump; echo re""ady'
expect ready || exit 1
zpty -w shell "source <($1 completion zsh)"
zpty -w shell 'zstyle ":completion:*" list-grouped no
zstyle ":completion:*:default" list-prompt ""
show() {
  compstate[insert]= compstate[list]=
  local -a all
  compadd() { builtin compadd -A found "$@"; all+=($found); builtin compadd "$@" }
  _main_complete
  print -r -- "<<" $all ">>"
}
zle -C show list-choices show; bindkey "^T" show; echo re""ady again'
expect 'ready again' || exit 1
zpty -w -n shell "$2"$'\C-t'
expect '>>'
print -r -- ${${answer##*<<}%%>>*}
