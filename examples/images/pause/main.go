// Command pause is the first process of a pod sandbox. It keeps the namespaces open, and exits
// on SIGINT or SIGTERM. If the pod's containers share the process namespace, it reaps
// orphaned processes.
//
// It has as few dependencies as possible, since a node runs one such process for each pod.
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
