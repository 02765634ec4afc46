// Command extras has the parts of curl, dd, nmeter and nc that the suite uses. Images contain it
// in addition to busybox and agnhost. The name under which it is called selects the program.
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	case "dd": // busybox' does not know nocache, which is a matter of speed
		args := slices.DeleteFunc(os.Args[1:], func(a string) bool { return a == "iflag=nocache" || a == "oflag=nocache" })
		if err := syscall.Exec("/bin/busybox", append([]string{"dd"}, args...), os.Environ()); err != nil {
			fmt.Fprintln(os.Stderr, "dd:", err)
			os.Exit(1)
		}
	case "nc":
		if err := nc(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "nc:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "%q is neither curl, dd, nmeter nor nc\n", name)
		os.Exit(127)
	}
}

// nc sends its input as one datagram and prints the data that it receives within the time of -w.
// If -u is not given, it executes busybox's nc.
func nc(args []string) error {
	if !slices.Contains(args, "-u") {
		return syscall.Exec("/bin/busybox", append([]string{"nc"}, args...), os.Environ())
	}
	wait := time.Second
	if i := slices.Index(args, "-w"); i >= 0 && i+1 < len(args) {
		s, _ := strconv.Atoi(args[i+1])
		wait = time.Duration(s) * time.Second
	}
	if len(args) < 2 {
		return errors.New("want a host and a port")
	}
	conn, err := net.Dial("udp", net.JoinHostPort(args[len(args)-2], args[len(args)-1]))
	if err != nil {
		return err
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if _, err := conn.Write(input); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	_, _ = os.Stdout.Write(buf[:n])
	return err
}

// curl requests one URL and prints the answer.
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
