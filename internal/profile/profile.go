// Package profile serves the profiles of the Go runtime over HTTP for "go tool pprof", as
// net/http/pprof does. Unlike net/http/pprof it does not register with
// http.DefaultServeMux on import, so that a program that serves this mux does not expose
// its profiles unintentionally.
package profile

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"
)

// Longest is the maximum duration of a profile or a trace.
const Longest = 5 * time.Minute

// Handler returns a handler that serves a list of the profiles at the path base, and each
// profile below base by its name. Further names are "profile" (the CPU profile), "trace"
// (an execution trace) and "cmdline". The query parameter seconds is the duration of the
// CPU profile (default 30) or of the trace (default 1). With debug=1 a profile is text.
// With gc=1 a garbage collection precedes the heap profile.
func Handler(base string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		below := strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(base, "/"))
		switch name := strings.TrimPrefix(below, "/"); name {
		case "":
			index(w)
		case "cmdline":
			fmt.Fprint(w, strings.Join(os.Args, "\x00"))
		case "symbol":
			fmt.Fprint(w, "num_symbols: 0\n") // Go's profiles contain their symbols
		case "profile":
			timed(w, r, 30, func(ctx context.Context) error {
				if err := pprof.StartCPUProfile(w); err != nil {
					return err
				}
				<-ctx.Done()
				pprof.StopCPUProfile()
				return nil
			})
		case "trace":
			timed(w, r, 1, func(ctx context.Context) error {
				if err := trace.Start(w); err != nil {
					return err
				}
				<-ctx.Done()
				trace.Stop()
				return nil
			})
		default:
			lookup(w, r, name)
		}
	})
}

func index(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(w, "%d\t%s\n", p.Count(), p.Name())
	}
	fmt.Fprint(w, "\tcmdline\n\tprofile\n\ttrace\n")
}

func lookup(w http.ResponseWriter, r *http.Request, name string) {
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "Unknown profile", http.StatusNotFound)
		return
	}
	if r.FormValue("gc") == "1" && name == "heap" {
		runtime.GC()
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		binary(w, name)
	}
	_ = p.WriteTo(w, debug) // fails only if the client has disconnected
}

func binary(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
}

// timed calls take with a context that ends after the duration in the query parameter
// seconds, or when the client disconnects. seconds is the default duration.
func timed(w http.ResponseWriter, r *http.Request, seconds float64, take func(context.Context) error) {
	if v := r.FormValue("seconds"); v != "" {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || f > Longest.Seconds() {
			http.Error(w, fmt.Sprintf("seconds is %q; want more than 0, at most %v", v, Longest.Seconds()), http.StatusBadRequest)
			return
		}
		seconds = f
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	binary(w, "profile")
	if err := take(ctx); err != nil { // another CPU profile or trace is running
		w.Header().Del("Content-Disposition")
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
