// Command sidecar requests a URL at an interval and prints the status when it changes. It is
// an example of a program that runs next to a pod's main container, such as a log shipper.
//
//	sidecar [-url http://127.0.0.1:8080/healthz] [-every 5s]
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080/healthz", "the `URL` to request")
	every := flag.Duration("every", 5*time.Second, "the `time` between two requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for last := ""; ; {
		// Print only changes: repeated results would fill the log.
		if now := ask(ctx, *url); now != last && ctx.Err() == nil {
			fmt.Println(*url+":", now)
			last = now
		}
		select {
		case <-ctx.Done():
			fmt.Println("ending")
			return
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	if err := resp.Body.Close(); err != nil {
		return err.Error()
	}
	return resp.Status
}
