package sim

import (
	"fmt"
	"strings"
	"time"
)

// step is one line of a schedule: a pause, and then one thing that happens. Any
// line may be left out of a schedule, and the rest is one still: a step about
// a pod that is not there does nothing.
type step struct {
	after time.Duration
	verb  string
	args  []string
}

func (s step) String() string {
	return strings.Join(append([]string{"+" + s.after.String(), s.verb}, s.args...), " ")
}

// arg is the nth argument, or "".
func (s step) arg(n int) string {
	if n < len(s.args) {
		return s.args[n]
	}
	return ""
}

// parse reads a schedule. Empty lines and those that begin with # are nothing.
func parse(text string) ([]step, error) {
	var out []step
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		after, err := time.ParseDuration(strings.TrimPrefix(f[0], "+"))
		if err != nil || len(f) < 2 {
			return nil, fmt.Errorf("line %d: %q: want a pause and a verb, such as %q", n+1, line, "+3m agent killed")
		}
		if _, known := verbs[f[1]]; !known {
			return nil, fmt.Errorf("line %d: verb %q is not known", n+1, f[1])
		}
		out = append(out, step{after: after, verb: f[1], args: f[2:]})
	}
	return out, nil
}

func format(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}
