package cni

import "errors"

// skipped is a file that is not used, or whose earlier content is used instead, and the reason.
type skipped struct {
	file string
	err  error
}

// choose returns the first valid list of the files, which are sorted, and the files
// before it. last is the list in use: it is kept while its file cannot be read or
// parsed and, if the file is unchanged, while its plugins do not return their
// versions.
func choose(files []string, read func(file string) (*list, error), check func(*list) (version string, err error), last *list) (*list, []skipped) {
	var passed []skipped
	for _, file := range files {
		l, err := read(file)
		switch {
		case errors.Is(err, errUnreadable) && last != nil && last.file == file:
			return last, append(passed, skipped{file, err})
		case err != nil:
			passed = append(passed, skipped{file, err})
			continue
		}
		version, err := check(l)
		switch {
		case errors.Is(err, errUnanswered) && l.same(last):
			return last, append(passed, skipped{file, err})
		case err != nil:
			passed = append(passed, skipped{file, err})
		case l.same(last) && version == last.version:
			return last, passed
		default:
			return l.speaking(version), passed
		}
	}
	return nil, passed
}
