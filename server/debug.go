package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/profile"
	"github.com/nodewright/nodewright/server/internal/nodelog"
)

// checkpointLasts limits a checkpoint: all memory of a container is written to disk.
const checkpointLasts = 10 * time.Minute

// debugRoutes are the endpoints for debugging a node, beside streams and logs. A
// disabled one answers 405 with the kubelet's text, by which clients distinguish it
// from a missing feature.
func (s *Server) debugRoutes() []route {
	var rs []route
	if s.cfg.Checkpoint != nil {
		// It has a timeout of its own, far beyond Config.Timeout.
		rs = append(rs, route{pattern: "/checkpoint/{namespace}/{pod}/{container}", methods: post, heavy: true, budget: checkpointLasts, serve: s.checkpoint})
	}
	if s.cfg.Configz != nil {
		rs = append(rs, route{pattern: "/configz", methods: get, serve: func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, map[string]any{"kubeletconfig": s.cfg.Configz()})
		}})
	}
	if s.cfg.Flags != nil {
		rs = append(rs, route{pattern: "/flagz", methods: get, serve: s.flagz})
	}
	// Always there: it says nothing that needs a switch.
	rs = append(rs, route{pattern: "/statusz", methods: get, serve: s.statusz})
	switch {
	// Without a LogLevel the endpoint is missing, and not disabled.
	case !s.cfg.EnableDebugFlagsHandler:
		rs = append(rs, route{pattern: "/debug/flags/v", serve: disabled("flags endpoint is disabled.")})
	case s.cfg.LogLevel != nil:
		rs = append(rs, route{pattern: "/debug/flags/v", methods: []string{http.MethodGet, http.MethodPut}, serve: s.logLevel})
	}
	if s.cfg.EnableProfilingHandler {
		// Profiles take as long as requested, up to a limit.
		rs = append(rs, route{pattern: "/debug/pprof/", methods: getPost, heavy: true, budget: profile.Longest + late, serve: profile.Handler("/debug/pprof/").ServeHTTP})
	} else {
		rs = append(rs, route{pattern: "/debug/pprof/", serve: disabled("profiling endpoint is disabled.")})
	}
	if !s.cfg.EnableSystemLogHandler {
		return append(rs, route{pattern: "/logs/", serve: disabled("logs endpoint is disabled.")})
	}
	logs := nodelog.Handler(nodelog.Config{Dir: s.cfg.SystemLogDir, Query: s.cfg.EnableSystemLogQuery})
	// Logs may be large and clients slow: ten times the usual budget.
	return append(rs, route{pattern: "/logs/", methods: get, heavy: true, budget: 10 * s.cfg.Timeout, serve: http.StripPrefix("/logs", logs).ServeHTTP})
}

// logLevel answers with the verbosity, or sets it to the number in the body.
func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, "%d\n", s.cfg.LogLevel.LogLevel())
		return
	}
	// A number of 64 digits is large enough.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	text := strings.TrimSpace(string(body))
	v, nerr := strconv.Atoi(text)
	if err != nil || nerr != nil || v < 0 {
		http.Error(w, fmt.Sprintf("error reading the verbosity %q; want a number from 0", text), http.StatusBadRequest)
		return
	}
	if err := s.cfg.LogLevel.SetLogLevel(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", v)
}
