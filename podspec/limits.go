package podspec

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// The limits of execve(2) for arguments and environment. The compiler enforces them because
// nested references let a small pod expand to an environment of any size.
const (
	// maxString is the longest argument or variable (MAX_ARG_STRLEN). It includes NAME= and the
	// final zero byte.
	maxString = 128 << 10
	// maxStrings limits the total size of the arguments, and also the total size of the variables.
	// It is a quarter of the usual stack of 8 MiB.
	maxStrings = 2 << 20
	// perString is the overhead of each string: a zero byte and a pointer.
	perString = 1 + 8
	// maxPath is the longest path (PATH_MAX without the final zero byte).
	maxPath = 4096 - 1
)

// boundedEnv is a container's environment within the limits of execve.
type boundedEnv struct {
	environment
	container string
	col       *collector
	size      int
	full      bool // the environment would be too large; the problem is recorded
}

// fits records a problem and returns false if a variable with a value of this length would be too
// long.
func (v *boundedEnv) fits(path *field.Path, name string, length int) bool {
	// A variable consists of NAME, an equals sign, the value and a zero byte.
	if length > maxString-1-len(name)-1 {
		v.col.add(path, "container %q: variable %q would have more than the %d bytes that a variable may have, with its name", v.container, clip(name), maxString)
		return false
	}
	return true
}

// put sets a variable. It records a problem if the environment would become too large.
func (v *boundedEnv) put(path *field.Path, name, value string) {
	if v.full || !v.fits(path, name, len(value)) {
		return
	}
	// The value that is replaced no longer counts.
	size := v.size + len(value)
	if old, ok := v.get(name); ok {
		size -= len(old)
	} else {
		size += len(name) + 1 + perString
	}
	if size > maxStrings {
		// Stays full even if later variables would fit: an incomplete environment is useless.
		v.full = true
		v.col.add(path, "container %q: with variable %q the environment would have more than the %d bytes that it may have", v.container, clip(name), maxStrings)
		return
	}
	v.size = size
	v.set(name, value)
}

// arguments expands a container's command and args.
func arguments(conf *runtimeapi.ContainerConfig, container string, command, args []string, e *boundedEnv, path *field.Path, col *collector) {
	size := 0
	// The size is shared by command and args, as execve has one limit for both.
	expand := func(path *field.Path, in []string) (out []string, ok bool) {
		for i, s := range in {
			v, _, ok := podmeta.ExpandWithin(s, maxString-1, e.get)
			if !ok {
				col.add(path.Index(i), "container %q: it would have more than the %d bytes that an argument may have", container, maxString)
				return nil, false
			}
			if size += len(v) + perString; size > maxStrings {
				col.add(path.Index(i), "container %q: with it command and args would have more than the %d bytes that they may have together", container, maxStrings)
				return nil, false
			}
			out = append(out, v)
		}
		return out, true
	}
	var ok bool
	// If the command is too large, the args are not checked: one problem is enough.
	if conf.Command, ok = expand(path.Child("command"), command); ok {
		conf.Args, _ = expand(path.Child("args"), args)
	}
}

// maxDetail limits the text of a problem, in bytes. Fields of a pod may be long, and the text
// becomes part of events and statuses.
const maxDetail = 1 << 10

// clip shortens the value of a field for a message.
func clip(s string) string { return clipTo(s, 100) }

// clipTo shortens a text to about limit bytes, at a character boundary, and appends its original
// length.
func clipTo(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + fmt.Sprintf("... (%d bytes)", len(s))
}
