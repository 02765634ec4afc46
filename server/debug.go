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

// checkpointLasts limits a checkpoint, which writes all memory of a container to disk.
const checkpointLasts = 10 * time.Minute

// debugRoutes returns the endpoints for debugging a node, except streams and logs. A disabled
// endpoint answers 405 with the kubelet's text. Clients recognize by this text that the
// endpoint is disabled, and not missing.
func (s *Server) debugRoutes() []route {
	var rs []route
	if s.cfg.Checkpoint != nil {
		// Its timeout is far longer than requestTime.
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
	// Always enabled, since it shows nothing sensitive.
	rs = append(rs, route{pattern: "/statusz", methods: get, serve: s.statusz})
	switch {
	// Without a LogLevel, the endpoint does not exist; that differs from a disabled endpoint.
	case !s.cfg.EnableDebugFlagsHandler:
		rs = append(rs, route{pattern: "/debug/flags/v", serve: disabled("flags endpoint is disabled.")})
	case s.cfg.LogLevel != nil:
		rs = append(rs, route{pattern: "/debug/flags/v", methods: []string{http.MethodGet, http.MethodPut}, serve: s.logLevel})
	}
	if s.cfg.EnableProfilingHandler {
		// A profile takes as long as requested, up to a limit.
		rs = append(rs, route{pattern: "/debug/pprof/", methods: getPost, heavy: true, budget: profile.Longest + late, serve: profile.Handler("/debug/pprof/").ServeHTTP})
	} else {
		rs = append(rs, route{pattern: "/debug/pprof/", serve: disabled("profiling endpoint is disabled.")})
	}
	if !s.cfg.EnableSystemLogHandler {
		return append(rs, route{pattern: "/logs/", serve: disabled("logs endpoint is disabled.")})
	}
	logs := nodelog.Handler(nodelog.Config{Dir: s.cfg.SystemLogDir, Query: s.cfg.EnableSystemLogQuery})
	// Logs may be large and clients slow, so the budget is ten times the usual one.
	return append(rs, route{pattern: "/logs/", methods: get, heavy: true, budget: 10 * requestTime, serve: http.StripPrefix("/logs", logs).ServeHTTP})
}

// logLevel returns the verbosity, or sets it to the number in the body.
func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, "%d\n", s.cfg.LogLevel.LogLevel())
		return
	}
	// 64 digits are enough for a number.
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
