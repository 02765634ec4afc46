package probe

import (
	"strings"

	v1 "k8s.io/api/core/v1"
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
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(arg, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			arg = rest[1:]
			continue
		case strings.HasPrefix(rest, "(") && closed:
			if v, ok := literal(env, name[1:]); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$" + name + ")")
			}
			arg = after
			continue
		}
		b.WriteByte('$')
		arg = rest
	}
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
