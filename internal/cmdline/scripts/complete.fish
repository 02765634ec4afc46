# Completion of PROGRAM for fish: PROGRAM completion fish | source
function __complete_IDENTIFIER
	set -l words (commandline -opc) (commandline -ct)
	$words[1] __complete $words[2..-1] 2>/dev/null
end
function __complete_IDENTIFIER_some
	test (count (__complete_IDENTIFIER)) -gt 0
end
complete -c PROGRAM -n __complete_IDENTIFIER_some -f -a '(__complete_IDENTIFIER)'
