package probe

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// expandAll returns a command whose references $(NAME) are replaced by the literal values in env.
// References to variables with other sources are kept, and $$ becomes $. An argument that would be
// too long for execve(2) after the replacement is kept as it is.
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

// The limits of execve(2) in bytes: MAX_ARG_STRLEN for one argument, and a quarter of the usual
// stack of 8 MiB for all.
const (
	maxArgument = 128 << 10
	maxCommand  = 2 << 20
)

// expand returns arg with its references replaced, or arg unchanged if the result would be longer
// than limit bytes.
func expand(arg string, env []v1.EnvVar, limit int) string {
	out, _, ok := podmeta.ExpandWithin(arg, limit, func(name string) (string, bool) { return literal(env, name) })
	if !ok {
		return arg
	}
	return out
}

// literal returns the value of a variable, and false if it is not set or its value comes from
// another source. If several variables have that name, the last one counts.
func literal(env []v1.EnvVar, name string) (string, bool) {
	// From the end, as a later variable of the same name replaces an earlier one.
	for i := len(env) - 1; i >= 0; i-- {
		if env[i].Name == name {
			return env[i].Value, env[i].ValueFrom == nil
		}
	}
	return "", false
}
