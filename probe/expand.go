package probe

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// expandAll replaces $(NAME) in a command by the literal values in env. References
// to other sources are not known and are kept; $$ stands for $. An argument that
// would be too long for a program is not expanded.
func expandAll(command []string, env []v1.EnvVar) []string {
	// The limit is of the whole command: references can make kilobytes into
	// gigabytes.
	out, left := make([]string, len(command)), maxCommand
	for i, arg := range command {
		out[i] = expand(arg, env, min(left, maxArgument))
		left = max(left-len(out[i]), 0)
	}
	return out
}

// The limits of execve(2): MAX_ARG_STRLEN, and a fourth of the usual stack of 8
// MiB. Bytes.
const (
	maxArgument = 128 << 10
	maxCommand  = 2 << 20
)

// expand replaces the references of one argument; a result of more than limit bytes
// is not used.
func expand(arg string, env []v1.EnvVar, limit int) string {
	out, _, ok := podmeta.ExpandWithin(arg, limit, func(name string) (string, bool) { return literal(env, name) })
	if !ok {
		return arg
	}
	return out
}

// literal returns the literal value of a variable; the last one wins.
func literal(env []v1.EnvVar, name string) (string, bool) {
	// From the end, as a later variable of the same name replaces an earlier one.
	for i := len(env) - 1; i >= 0; i-- {
		if env[i].Name == name {
			return env[i].Value, env[i].ValueFrom == nil
		}
	}
	return "", false
}
