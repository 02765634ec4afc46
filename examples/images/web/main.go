// Command web is a web server for static files. It serves a directory and prints a line on
// standard output for each request. On SIGTERM it finishes open requests and exits.
//
//	web [-addr :8080] [-dir /srv/www]
//	web drain 1s        waits, so that clients can disconnect; for a preStop hook
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "drain" {
		d, err := time.ParseDuration(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, "web:", err)
			os.Exit(2)
		}
		time.Sleep(d)
		return
	}
	addr := flag.String("addr", ":8080", "`address` to serve on")
	dir := flag.String("dir", "/srv/www", "`directory` to serve")
	flag.Parse()
	if err := serve(*addr, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

func serve(addr, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok") // fails only if the client has disconnected
	})
	files := http.FileServer(http.Dir(dir))
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		files.ServeHTTP(w, r)
	})
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.ListenAndServe() }()
	fmt.Printf("serving %s on %s\n", dir, addr)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Println("ending: no new requests")
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(end); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
