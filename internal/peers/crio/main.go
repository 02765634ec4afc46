// Program crio replaces CRI-O in CRI-O's own tests: it has the commands that the tests' helpers
// call, and serves localcri on their socket.
//
//	crio config --default           # prints the default configuration
//	crio --listen SOCKET ... config # prints the configuration with these options
//	crio -c FILE -d DIR             # serves CRI
//
// It knows the options and keys below and ignores all others. At the start it loads the image
// archives in the directory $PEERS_IMAGES. If PEERS_MIRROR is set, it pulls images of all registries
// from this registry, over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network/cni"
)

// keys maps the options that this program knows to keys of the configuration.
var keys = map[string]string{
	"--listen": "listen", "-r": "root", "--cni-config-dir": "network_dir", "--cni-plugin-dir": "plugin_dir",
	"--cgroup-manager": "cgroup_manager", "-c": "config", "-d": "config_dir",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crio:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	given := map[string]string{}
	for i, arg := range args[:max(0, len(args)-1)] {
		if key := keys[arg]; key != "" {
			given[key] = args[i+1]
		}
	}
	if slices.Contains(args, "config") {
		fmt.Println("[crio]")
		for key, value := range given {
			fmt.Printf("%s = %q\n", key, value)
		}
		return nil
	}
	conf, err := read(given["config"], given["config_dir"])
	if err != nil {
		return err
	}
	return serve(conf)
}

// setting matches a key and its value in a configuration file. The value is a list in brackets,
// which may have several lines, or the rest of the line.
var setting = regexp.MustCompile(`(?m)^[ \t]*(\w+)[ \t]*=[ \t]*(\[[^\]]*\]|.*)$`)

// read returns the settings in a file and in the files *.conf of a directory. Later files
// override earlier ones. It fails if a required key is missing.
func read(file, dir string) (map[string]string, error) {
	conf := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.conf")) //nolint:forbidigo // a directory of the test's
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{file}, files...) {
		b, err := os.ReadFile(name) //nolint:forbidigo // a file of the test's
		if err != nil {
			return nil, err
		}
		for _, m := range setting.FindAllStringSubmatch(string(b), -1) {
			conf[m[1]] = strings.Trim(strings.TrimSpace(m[2]), `"`)
		}
	}
	for _, key := range []string{"listen", "root", "network_dir", "plugin_dir"} {
		if conf[key] == "" {
			return nil, fmt.Errorf("key %s is missing in %s and %s", key, file, dir)
		}
	}
	return conf, nil
}

// serve runs the runtime until a signal arrives. Containers keep running after that, as
// with CRI-O.
func serve(conf map[string]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	driver := "cgroupfs"
	if conf["cgroup_manager"] == "systemd" {
		driver = "systemd"
	}
	var registries map[string]image.Registry
	if mirror := os.Getenv("PEERS_MIRROR"); mirror != "" {
		registries = map[string]image.Registry{"*": {Mirrors: []image.Mirror{{Host: mirror, Endpoint: image.Endpoint{PlainHTTP: true}}}}}
	}
	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{
		RootDir: conf["root"], CgroupDriver: driver, Network: localcri.NetworkCNI,
		CNI:        cni.Config{ConfDir: conf["network_dir"], BinDirs: []string{conf["plugin_dir"]}},
		Registries: registries,
		CDIDirs:    strings.FieldsFunc(conf["cdi_spec_dirs"], func(r rune) bool { return strings.ContainsRune("[]\", \n\t", r) }), Log: log,
	})
	if err != nil {
		return err
	}
	s, err := localcri.NewServer(localcri.ServerConfig{Socket: conf["listen"], Runtime: rt.Runtime(), Images: rt.Images(), Streams: rt.Streams(), Log: log})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { defer cancel(); ended <- rt.Run(ctx) }()
	// Load the images before the socket exists: the tests list the images at once.
	if err = load(ctx, rt, os.Getenv("PEERS_IMAGES")); err == nil {
		err = s.Run(ctx)
	}
	cancel()
	return errors.Join(err, <-ended)
}

// load imports the image archives *.tar in dir.
func load(ctx context.Context, rt *localcri.InProcess, dir string) error {
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar")) //nolint:forbidigo // a directory of the test's
	if err != nil {
		return err
	}
	for _, name := range archives {
		f, err := os.Open(name) //nolint:forbidigo // an archive of the test's
		if err != nil {
			return err
		}
		_, err = rt.Import(ctx, f, "")
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
