// Command extras is what the suite's images have beside busybox and agnhost: as
// much of curl and nmeter as the suite uses, by the name it is called with.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "nmeter": // of %3t: the time of day with milliseconds
		fmt.Println(time.Now().UTC().Format("15:04:05.000"))
	case "curl":
		if err := curl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "curl:", err)
			os.Exit(7)
		}
	default:
		fmt.Fprintf(os.Stderr, "%q is neither curl nor nmeter\n", name)
		os.Exit(127)
	}
}

// curl reads one URL and prints what comes.
func curl(args []string) error {
	var (
		url, method = "", http.MethodGet
		timeout     = time.Minute
		connect     = 30 * time.Second
		headers     bool
	)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		value := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		seconds := func() time.Duration {
			s, _ := strconv.ParseFloat(value(), 64)
			return time.Duration(s * float64(time.Second))
		}
		switch arg {
		case "--max-time", "-m":
			timeout = seconds()
		case "--connect-timeout":
			connect = seconds()
		case "-X", "--request":
			method = value()
		case "-i", "--include":
			headers = true
		default:
			if !strings.HasPrefix(arg, "-") {
				url = arg
			}
		}
	}
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext:     (&net.Dialer{Timeout: connect}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as with -k, which is all that the suite uses
	}}
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if headers {
		fmt.Printf("%s %s\r\n", res.Proto, res.Status)
		_ = res.Header.Write(os.Stdout)
		fmt.Print("\r\n")
	}
	_, err = io.Copy(os.Stdout, res.Body)
	return err
}
