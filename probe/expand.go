package probe

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// expandAll replaces $(NAME) in a command by the values that env spells out.
// Those that come from elsewhere are not known to a probe, and their
// references stay as they are; $$ stands for $.
func expandAll(command []string, env []v1.EnvVar) []string {
	out := make([]string, len(command))
	for i, arg := range command {
		out[i] = expand(arg, env)
	}
	return out
}

func expand(arg string, env []v1.EnvVar) string {
	out, _ := podmeta.Expand(arg, func(name string) (string, bool) { return literal(env, name) })
	return out
}

// literal is the value that env spells out for name; the last one counts.
func literal(env []v1.EnvVar, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if env[i].Name == name {
			return env[i].Value, env[i].ValueFrom == nil
		}
	}
	return "", false
}
