// Command testbox runs the steps in its arguments, for tests of a container
// runtime. It runs the steps in order, and exits with 0 after the last.
//
//	out TEXT          print TEXT and a newline on standard output
//	err TEXT          print TEXT and a newline on standard error
//	lines N           print N numbered lines
//	raw TEXT          print TEXT without a newline
//	env NAME          print the value of a variable; "env ." prints all variables, sorted
//	args              print the program's arguments, one per line
//	cat FILE          print a file, or standard input for "-"
//	write FILE TEXT   write TEXT into FILE
//	wait FILE         wait until FILE exists
//	ls DIR            print the names in DIR, one per line
//	stat FILE         print the permissions in octal, the uid and the gid of FILE
//	child             run the following steps in a child process, and exit with its exit code
//	id                print uid and gid
//	alloc MIB         allocate and write this amount of memory
//	sleep DURATION    sleep; "sleep forever" never ends
//	ignore            from now on, ignore SIGTERM
//	trap CODE DELAY   from now on, SIGTERM prints "got TERM", waits for DELAY and exits with CODE
//	catch NAME        from now on, the signal NAME (USR1, HUP, INT, QUIT) prints "got NAME" and exits with 0
//	serve ADDR        serve HTTP on ADDR: the response is the host name; never ends
//	health ADDR FILE  serve HTTP and gRPC health checks on ADDR, which succeed while FILE exists, and otherwise fail (HTTP with 503); never ends
//	remove FILE       remove a file
//	listen ADDR       accept TCP connections on ADDR and close them; never ends
//	exit CODE         exit with CODE
//
// SIGTERM ends the program with exit code 143, unless a step has changed this.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	box := &box{term: make(chan func())}
	go func() {
		onTerm := func() { os.Exit(143) }
		for {
			select {
			case onTerm = <-box.term:
			case <-terms:
				onTerm()
			}
		}
	}()
	if err := box.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testbox:", err)
		os.Exit(125)
	}
}

type box struct {
	term chan func() // action on SIGTERM
}

// arity is the number of arguments of each step.
var arity = map[string]int{
	"out": 1, "err": 1, "lines": 1, "raw": 1, "env": 1, "args": 0, "cat": 1, "write": 2, "wait": 1, "ls": 1, "stat": 1, "child": 0, "id": 0,
	"alloc": 1, "sleep": 1, "ignore": 0, "trap": 2, "catch": 1, "serve": 1, "health": 2, "remove": 1, "listen": 1, "exit": 1,
}

func (b *box) run(args []string) error {
	for len(args) > 0 {
		n, ok := arity[args[0]]
		if !ok {
			return fmt.Errorf("no step %q", args[0])
		}
		if len(args) < n+1 {
			return fmt.Errorf("%s takes %d arguments", args[0], n)
		}
		if args[0] == "child" {
			return child(args[1:])
		}
		if err := b.step(args[0], args[1:n+1]); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		args = args[n+1:]
	}
	return nil
}

func (b *box) step(name string, a []string) error {
	switch name {
	case "out":
		fmt.Println(a[0])
	case "err":
		fmt.Fprintln(os.Stderr, a[0])
	case "raw":
		fmt.Print(a[0])
	case "args":
		fmt.Println(strings.Join(os.Args[1:], "\n"))
	case "id":
		fmt.Println(os.Getuid(), os.Getgid())
	case "lines":
		return lines(a[0])
	case "env":
		return env(a[0])
	case "cat":
		return cat(a[0])
	case "ls":
		return ls(a[0])
	case "stat":
		return stat(a[0])
	case "write":
		return os.WriteFile(a[0], []byte(a[1]), 0o644)
	case "wait":
		return wait(a[0])
	case "alloc":
		return alloc(a[0])
	case "sleep":
		return sleep(a[0])
	case "ignore":
		b.term <- func() {}
	case "trap":
		return b.trap(a[0], a[1])
	case "catch":
		return catch(a[0])
	case "serve":
		return serve(a[0])
	case "health":
		return health(a[0], a[1])
	case "remove":
		return os.Remove(a[0])
	case "listen":
		return listen(a[0])
	case "exit":
		code, err := strconv.Atoi(a[0])
		if err == nil {
			os.Exit(code)
		}
		return err
	}
	return nil
}

func lines(count string) error {
	n, err := strconv.Atoi(count)
	for i := range n {
		fmt.Println("line", i+1)
	}
	return err
}

func env(name string) error {
	if name != "." {
		v, ok := os.LookupEnv(name)
		if !ok {
			return fmt.Errorf("%s is not set", name)
		}
		fmt.Println(v)
		return nil
	}
	all := os.Environ()
	slices.Sort(all)
	fmt.Println(strings.Join(all, "\n"))
	return nil
}

func cat(name string) error {
	if name == "-" {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}

func ls(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, n := range names {
		fmt.Println(filepath.Base(n))
	}
	return err
}

func stat(name string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil {
		return err
	}
	fmt.Printf("%o %d %d\n", st.Mode&0o7777, st.Uid, st.Gid)
	return nil
}

// child runs the steps in a child process and exits with the child's exit code. If a signal
// killed the child, the exit code is 128 plus the number of the signal, as in shells.
func child(steps []string) error {
	c := exec.Command("/proc/self/exe", steps...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	code := c.ProcessState.ExitCode()
	if st, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		code = 128 + int(st.Signal())
	}
	os.Exit(code)
	return nil
}

func wait(name string) error {
	for {
		_, err := os.Stat(name)
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// held references the memory of the step alloc, so that the garbage collector does not free it.
var held [][]byte

func alloc(mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	for range n {
		page := make([]byte, 1<<20)
		for i := range page {
			page[i] = byte(i)
		}
		held = append(held, page)
	}
	return nil
}

func sleep(how string) error {
	if how == "forever" {
		select {}
	}
	d, err := time.ParseDuration(how)
	time.Sleep(d)
	return err
}

func (b *box) trap(code, delay string) error {
	c, err := strconv.Atoi(code)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	b.term <- func() {
		fmt.Println("got TERM")
		time.Sleep(d)
		os.Exit(c)
	}
	return nil
}

func catch(name string) error {
	sig, ok := map[string]os.Signal{"USR1": syscall.SIGUSR1, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT}[name]
	if !ok {
		return fmt.Errorf("no signal %q", name)
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, sig)
	go func() {
		<-got
		fmt.Println("got", name)
		os.Exit(0)
	}()
	return nil
}

func serve(addr string) error {
	srv := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			name, err := os.Hostname()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprintln(w, name) // fails only if the client has disconnected
		})}
	return srv.ListenAndServe()
}

func listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
}
