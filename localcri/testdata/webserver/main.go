// Program webserver stands for the programs of critest's images: nginx and httpd
// serve a page, nnp reports its effective user, and pgrep and ipcs are what not every
// busybox has. Which it is, its name says.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const master = "nginx: master process nginx -g daemon off;"

func main() {
	name := filepath.Base(os.Args[0])
	if os.Args[0] == master {
		name = "master"
	}
	port := os.Getenv("PORT")
	switch name {
	case "nnp":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
		return
	case "pgrep":
		pgrep(os.Args[1])
		return
	case "ipcs":
		b, err := os.ReadFile("/proc/sysvipc/shm")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_, _ = os.Stdout.Write(b)
		return
	case "nginx": // begins again, as what ps shows of the real one
		fmt.Fprintln(os.Stderr, syscall.Exec("/usr/sbin/nginx", []string{master}, os.Environ()))
		os.Exit(1)
	case "httpd":
		fmt.Println("httpd serves") // so does the real one
	default:
		_ = os.WriteFile("/var/run/nginx.pid", []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644)
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Welcome to nginx!\n")
	})))
	os.Exit(1)
}

// pgrep lists the processes of a name.
func pgrep(name string) {
	files, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == name+"\n" {
			fmt.Println(filepath.Base(filepath.Dir(f)))
		}
	}
}
