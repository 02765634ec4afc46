#compdef PROGRAM
# Completion of PROGRAM for zsh: source <(PROGRAM completion zsh)
_complete_IDENTIFIER() {
	local line value
	local -a values shown
	while IFS= read -r line; do
		value=${line%%$'\t'*}
		values+=("$value")
		if [[ $line == *$'\t'* ]]; then
			shown+=("$value  -- ${line#*$'\t'}")
		else
			shown+=("$value")
		fi
	done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( ${#values} )); then
		compadd -l -d shown -a values
	else
		_files
	fi
}
if (( $+functions[compdef] )); then
	compdef _complete_IDENTIFIER PROGRAM
fi
