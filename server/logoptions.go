package server

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/cri/crilog"
	"github.com/nodewright/nodewright/internal/seconds"
)

// logOptions are the options for a container's log: the API's PodLogOptions in a query. tail is a
// number of lines, and limit a number of bytes. If a field is nil, the query does not limit the
// log by it.
type logOptions struct {
	// previous requests the log of the previous instance of the container.
	follow, previous, timestamps bool
	tail, limit, sinceSeconds    *int64
	sinceTime                    time.Time
	stream                       string // All, Stdout or Stderr
}

// The names of streams in the API.
const (
	streamAll    = "All"
	streamStdout = "Stdout"
	streamStderr = "Stderr"
)

// parseLogOptions parses a query. The older parameter tail is a number or "all". Unknown
// parameters are ignored, as in API servers. The error has all mistakes.
func parseLogOptions(q url.Values) (logOptions, error) {
	o := logOptions{
		follow: queryBool(q, "follow"), previous: queryBool(q, "previous"), timestamps: queryBool(q, "timestamps"),
		stream: streamAll,
	}
	if v := q.Get("stream"); v != "" {
		o.stream = v
	}
	// As in the kubelet, the older name takes precedence.
	tail := "tailLines"
	if q.Get("tail") != "" {
		tail = "tail"
	}
	var errs []error
	for _, n := range []struct {
		name string
		dst  **int64
	}{{tail, &o.tail}, {"limitBytes", &o.limit}, {"sinceSeconds", &o.sinceSeconds}} {
		v := q.Get(n.name)
		if v == "" || n.name == "tail" && v == "all" {
			continue
		}
		i, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q; want a number", n.name, v))
			continue
		}
		// A new variable in each iteration, since the pointers are kept.
		*n.dst = &i
	}
	// Some clients send "null" for a missing time.
	if v := q.Get("sinceTime"); v != "" && v != "null" {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			errs = append(errs, fmt.Errorf("sinceTime is %q; want a time such as 2026-01-02T15:04:05Z (RFC 3339)", v))
		}
		o.sinceTime = t
	}
	return o, errors.Join(errs...)
}

// queryBool parses a boolean parameter as the Kubernetes API does: the result is true if the
// parameter is present and its value is neither false nor 0.
func queryBool(q url.Values, name string) bool {
	v, ok := q[name]
	return ok && len(v) > 0 && !strings.EqualFold(v[0], "false") && v[0] != "0"
}

// validate returns all contradictions between options. The rules are the API server's, since
// direct clients of the node bypass the API server.
func (o *logOptions) validate() error {
	var errs []error
	if o.tail != nil && *o.tail < 0 {
		errs = append(errs, fmt.Errorf("tailLines is %d; want 0 or more", *o.tail))
	}
	if o.limit != nil && *o.limit < 1 {
		errs = append(errs, fmt.Errorf("limitBytes is %d; want 1 or more", *o.limit))
	}
	if o.sinceSeconds != nil && *o.sinceSeconds < 1 {
		errs = append(errs, fmt.Errorf("sinceSeconds is %d; want 1 or more", *o.sinceSeconds))
	}
	// It would be unclear which of the two counts.
	if o.sinceSeconds != nil && !o.sinceTime.IsZero() {
		errs = append(errs, errors.New("sinceSeconds and sinceTime exclude each other; want at most one of them"))
	}
	switch o.stream {
	case streamAll:
	case streamStdout, streamStderr:
		if o.tail != nil {
			errs = append(errs, fmt.Errorf("tailLines is set and stream is %s; want tailLines only with stream All", o.stream))
		}
	default:
		errs = append(errs, fmt.Errorf("stream is %q; want All, Stdout or Stderr", o.stream))
	}
	return errors.Join(errs...)
}

// reader returns the options for reading the log.
func (o *logOptions) reader(now time.Time) crilog.Options {
	// -1 means the whole log; 0 lines are a valid request.
	out := crilog.Options{Tail: -1, Follow: o.follow, Timestamps: o.timestamps, Since: o.sinceTime}
	if o.tail != nil {
		out.Tail = *o.tail
	}
	if o.limit != nil {
		out.Limit = *o.limit
	}
	if o.sinceSeconds != nil {
		// A number of seconds beyond the range of a Duration is limited and does not overflow.
		out.Since = now.Add(-seconds.Of(*o.sinceSeconds))
	}
	switch o.stream {
	case streamStdout:
		out.Stream = crilog.Stdout
	case streamStderr:
		out.Stream = crilog.Stderr
	}
	return out
}
