# Completion of PROGRAM for bash: source <(PROGRAM completion bash)
_complete_IDENTIFIER() {
	local line words=()
	local IFS=$'\n'
	words=("${COMP_WORDS[@]:1:COMP_CWORD}")
	COMPREPLY=()
	while read -r line; do
		COMPREPLY+=("${line%%$'\t'*}")
	done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _complete_IDENTIFIER PROGRAM
