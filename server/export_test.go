package server

import "github.com/fsnotify/fsnotify"

// What the tests from outside look at.
var (
	LogOf           = logOf
	ParseLogOptions = parseLogOptions
	StreamsOf       = streamsOf
	PortsOf         = portsOf
	EncodePods      = encodePods
	Clean           = clean
)

// Validate is the options' own.
func (o *logOptions) Validate() error { return o.validate() }

// Patterns lists all endpoints.
func (s *Server) Patterns() []string {
	var out []string
	for _, r := range s.routes() {
		out = append(out, r.pattern)
	}
	return out
}

// Concerns reports whether an event may change what files have.
func Concerns(ev fsnotify.Event, files []string) bool { return concerns(ev, files, targets(files)) }
