// Command hostpath replaces the image hostpathplugin in specs of mock CSI drivers, whose sources
// are not available as a Go module. With -proxy-endpoint, it joins each connection to the
// driver's socket with a connection that the spec opens to that port. Otherwise it is the suite's
// own mock driver.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"k8s.io/klog/v2"                                                   //nolint:depguard // that of the mock driver
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"       //nolint:depguard // nobody imports a command
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service" //nolint:depguard // nobody imports a command
)

func main() {
	var (
		c      service.Config
		attach bool
	)
	endpoint := flag.String("endpoint", "/csi/csi.sock", "the driver's socket")
	proxy := flag.String("proxy-endpoint", "", "where connections for those of the socket are taken, such as tcp://:9000")
	flag.StringVar(&c.DriverName, "drivername", "mock.storage.k8s.io", "the driver's name")
	flag.BoolVar(&attach, "enable-attach", false, "volumes are attached")
	flag.BoolVar(&c.EnableTopology, "enable-topology", false, "the node has a topology")
	flag.Int64Var(&c.AttachLimit, "attach-limit", 0, "how many volumes a node takes")
	flag.BoolVar(&c.NodeExpansionRequired, "node-expand-required", false, "volumes grow on the node, too")
	klog.InitFlags(nil) // -v=5 has the driver log each call, which specs read
	for _, unused := range []string{"nodeid", "statedir"} {
		flag.String(unused, "", "no effect")
	}
	flag.Parse()
	c.DisableAttach = !attach
	if err := run(c, strings.TrimPrefix(*endpoint, "unix://"), strings.TrimPrefix(*proxy, "tcp://")); err != nil {
		fmt.Fprintln(os.Stderr, "hostpath:", err)
		os.Exit(1)
	}
}

func run(c service.Config, socket, proxy string) error {
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if proxy != "" {
		return pass(l, proxy)
	}
	s := service.New(c)
	d := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: s, Identity: s, Node: s})
	if err := d.Start(l, nil); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	<-end
	d.Stop()
	return nil
}

// pass joins each connection of l with the next connection to address.
func pass(l net.Listener, address string) error {
	spec, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		in, err := l.Accept()
		if err != nil {
			return err
		}
		out, err := spec.Accept()
		if err != nil {
			return err
		}
		go join(in, out)
	}
}

// join copies data in both directions until one side ends.
func join(a, b net.Conn) {
	var once sync.Once
	end := func() { _, _ = a.Close(), b.Close() }
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		once.Do(end)
	}
	go copyTo(a, b)
	copyTo(b, a)
}
