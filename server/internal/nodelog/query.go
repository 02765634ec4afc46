package nodelog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// The limits of a query (KEP-2258).
const (
	maxServices = 4
	maxName     = 256
	maxTail     = 100_000
)

// query is a request for logs of services, or for a file.
type query struct {
	services, files []string
	since, until    time.Time // zero if not set
	tail, boot      *int
	pattern         string
}

// parse parses a query. It returns nil if q does not ask for logs of services or for a file.
func parse(q url.Values) (*query, error) {
	out := &query{pattern: q.Get("pattern")}
	var errs []error
	for _, v := range q["query"] {
		switch {
		case strings.ContainsAny(v, `/\`):
			out.files = append(out.files, v)
		case strings.TrimSpace(v) != "":
			out.services = append(out.services, v)
		}
	}
	_, asked := q["query"]
	if asked && len(out.files)+len(out.services) == 0 {
		errs = append(errs, errors.New("query is blank; want a service or a file"))
	}
	for _, t := range []struct {
		name string
		dst  *time.Time
	}{{"sinceTime", &out.since}, {"untilTime", &out.until}} {
		if v := q.Get(t.name); v != "" {
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s is %q; want a time such as 2026-01-02T15:04:05Z (RFC 3339)", t.name, v))
			}
			*t.dst = at
		}
	}
	for _, n := range []struct {
		name string
		dst  **int
	}{{"tailLines", &out.tail}, {"boot", &out.boot}} {
		if v := q.Get(n.name); v != "" {
			i, err := strconv.Atoi(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s is %q; want a number", n.name, v))
			}
			*n.dst = &i
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if !asked && !out.hasOptions() {
		return nil, nil
	}
	return out, nil
}

func (q *query) hasOptions() bool {
	return !q.since.IsZero() || !q.until.IsZero() || q.tail != nil || q.boot != nil || q.pattern != ""
}

var name = regexp.MustCompile(`^[A-Za-z0-9_.:@-]+$`)

// validate returns an error with all contradictions in a query. It calls the function exists for a
// file that the query names; exists returns an error if there is no such file.
func (q *query) validate(exists func(string) error) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(q.services) == 0 && len(q.files) == 0:
		bad("query is required with its options; want a service or a file")
	case len(q.services) > 0 && len(q.files) > 0:
		bad("query has services %q and files %q; want one kind", q.services, q.files)
	case len(q.files) > 1:
		bad("query has %d files; want one", len(q.files))
	case len(q.files) == 1 && q.hasOptions():
		bad("query has the file %q and options; want options with services only", q.files[0])
	case len(q.files) == 1:
		if err := exists(q.files[0]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(q.services) > maxServices {
		bad("query has %d services; want at most %d", len(q.services), maxServices)
	}
	for _, s := range q.services {
		if len(s) > maxName || !name.MatchString(s) {
			bad("query has the service %.64q; want at most %d letters, digits and _.:@-", s, maxName)
		}
	}
	if !q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until) {
		bad("sinceTime is %v, after untilTime, %v", q.since, q.until)
	}
	if q.boot != nil && *q.boot > 0 {
		bad("boot is %d; want 0 or less", *q.boot)
	}
	if q.tail != nil && (*q.tail < 0 || *q.tail > maxTail) {
		bad("tailLines is %d; want 0 to %d", *q.tail, maxTail)
	}
	if q.pattern != "" {
		if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
			bad("pattern is %.64q: %w", q.pattern, err)
		}
	}
	return errors.Join(errs...)
}

// journalTime is journalctl's format of times, in UTC.
const journalTime = "2006-01-02 15:04:05"

// command returns the arguments of journalctl.
func (q *query) command(service string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		args = append(args, "--since="+q.since.UTC().Format(journalTime))
	}
	if !q.until.IsZero() {
		args = append(args, "--until="+q.until.UTC().Format(journalTime))
	}
	if q.tail != nil {
		args = append(args, "--pager-end", "--lines="+strconv.Itoa(*q.tail))
	}
	args = append(args, "--unit="+service)
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, "--boot", strconv.Itoa(*q.boot))
	}
	return args
}
