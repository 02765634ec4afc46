package cni

import "errors"

// skipped is a file that is not used, or whose earlier content is used instead, and the reason.
type skipped struct {
	file string
	err  error
}

// choose returns the first valid list of the sorted files, and the files before it that
// are not valid. last is the list in use. It is kept while its file cannot be read or
// parsed, and also while its plugins do not return their versions, if the file is
// unchanged.
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
