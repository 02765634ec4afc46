// Command init writes one file and exits. An init container can use it to prepare a volume
// for the other containers of its pod.
//
//	init -to /srv/www/index.html [-text 'hello from ${POD_NAME}']
//
// ${NAME} in the text is replaced by the value of the environment variable NAME.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	to := flag.String("to", "", "the `file` to write")
	text := flag.String("text", "hello\n", "the text to write")
	flag.Parse()
	if err := write(*to, os.ExpandEnv(*text)); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
	fmt.Println("wrote", *to)
}

func write(to, text string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text), 0o644)
}
