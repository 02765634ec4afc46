// Command pause is the first process of a pod sandbox: it holds the namespaces
// open, adopts and reaps the pod's orphans when the process namespace is
// shared, and ends on SIGINT or SIGTERM.
//
// It has as few dependencies as possible, since a node runs one process of it for every
// pod.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != syscall.EINTR && (err != nil || pid <= 0) {
				break
			}
		}
	}
}
