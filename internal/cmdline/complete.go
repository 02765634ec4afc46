package cmdline

import (
	"flag"
	"slices"
	"strings"
)

// Request is a completion request of a shell: the words after the program's name.
// The last word is the one being typed; it may be empty.
type Request struct {
	Commands []Command
	Words    []string
	// Flags returns the flags of a command, or nil for none.
	Flags func(command string) *flag.FlagSet
	// Pods returns the names of running pods. It limits its own time.
	Pods func() []string
	// Values are the possible values of flags, by flag, separated by blanks.
	Values map[string]string
}

// Candidates returns the possible words for the place of the last one. A
// description may follow a word after a tab. If there are none, the shell offers
// files.
func (r Request) Candidates() []string {
	typed, before := "", r.Words
	if n := len(before); n > 0 {
		typed, before = before[n-1], before[:n-1]
	}
	if slices.Contains(before, "--") {
		return nil
	}
	command, arguments, pending := r.read(before)
	switch {
	case pending != "":
		return matching(typed, strings.Fields(r.Values[pending]))
	case strings.HasPrefix(typed, "-"):
		return matching(typed, flags(r.Flags(command)))
	case command == "":
		return matching(typed, r.names())
	}
	i := slices.IndexFunc(r.Commands, func(c Command) bool { return c.Name == command })
	if i < 0 {
		return nil
	}
	c := r.Commands[i]
	var all []string
	if len(arguments) == 0 {
		all = strings.Fields(c.Words)
	}
	if c.takesPod(arguments) {
		all = append(all, r.Pods()...)
	}
	return matching(typed, all)
}

// read finds the command and its arguments in words, and the flag that the next
// word is the value of.
func (r Request) read(words []string) (command string, arguments []string, pending string) {
	for _, w := range words {
		switch {
		case pending != "":
			pending = ""
		case strings.HasPrefix(w, "-"):
			name := strings.TrimLeft(w, "-")
			if fs := r.Flags(command); fs != nil && !strings.Contains(name, "=") {
				if f := fs.Lookup(name); f != nil && !IsBool(f.Value) {
					pending = name
				}
			}
		case command == "":
			command = w
		default:
			arguments = append(arguments, w)
		}
	}
	return command, arguments, pending
}

func (r Request) names() []string {
	var out []string
	for _, c := range r.Commands {
		if c.Topic != "" {
			out = append(out, c.Name+"\t"+c.Short)
		}
	}
	return out
}

func flags(fs *flag.FlagSet) []string {
	var out []string
	if fs != nil {
		fs.VisitAll(func(f *flag.Flag) {
			_, text := flag.UnquoteUsage(f)
			out = append(out, dashed(f.Name)+"\t"+text)
		})
	}
	return out
}

func matching(typed string, words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, typed) })
}

// takesPod reports whether a pod's name may follow these arguments: after the word
// "pod" where the command has that, else in the first place.
func (c Command) takesPod(arguments []string) bool {
	if !c.Pods {
		return false
	}
	if strings.HasPrefix(c.Words, "pod") {
		return len(arguments) > 0 && strings.HasPrefix(arguments[0], "po")
	}
	return len(arguments) == 0
}
