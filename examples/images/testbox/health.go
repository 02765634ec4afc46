package main

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"time"
)

// health serves health checks on addr, which succeed while file exists. It serves HTTP, and
// the part of the gRPC health checking protocol that a probe uses
// (github.com/grpc/grpc/blob/master/doc/health-checking.md).
func health(addr, file string) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second, Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := os.Stat(file)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			switch {
			case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
				answerGRPC(w, err == nil)
			case err != nil:
				http.Error(w, "not healthy", http.StatusServiceUnavailable)
			}
		})}
	return srv.ListenAndServe()
}

// answerGRPC writes a HealthCheckResponse and the status of the gRPC call. The response is a
// frame header of five bytes and a message of two bytes.
func answerGRPC(w http.ResponseWriter, serving bool) {
	status := byte(2) // NOT_SERVING
	if serving {
		status = 1
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status}) // fails only if the client has disconnected
	w.Header().Set("Grpc-Status", "0")
}
