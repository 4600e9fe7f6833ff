// Package broker runs Apache Kafka's own server for tests: nodes in KRaft mode
// that are brokers and controllers, on loopback ports, with Java. `.ci/kafka`
// brings its jars.
package broker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/deedhq/deed/e2e/gate"
)

// Env names the folder that has the server's jars.
const Env = "DEED_KAFKA"

//go:embed log4j2.properties
var logging []byte

// Options say what cluster [Start] makes. The zero value is one node.
type Options struct {
	Nodes int               // 1 or 3; default 1
	Dir   string            // for what it stores and logs; it must exist. Required
	Logs  map[int]string    // where a node, counted from 1, keeps records; default: in Dir
	Set   map[string]string // settings of all nodes

	// Behind makes the address that clients are told out of a broker's own.
	// Default: its own.
	Behind func(address string) string
}

// A Cluster is some nodes of one cluster.
type Cluster struct {
	Nodes []*Node // node 1 first
}

// A Node is one process of the server.
type Node struct {
	ID      int
	Address string // of the broker, as clients are told it
	Records string // the folder of its records

	own   string // the broker's own address
	dir   string
	mu    sync.Mutex // guards the field below
	alive *process
}

// process is one life of a node.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// Start starts the nodes and waits until all of them take part.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o.Nodes = max(o.Nodes, 1)
	ports, err := freePorts(2 * o.Nodes)
	if err != nil {
		return nil, err
	}
	voters := make([]string, o.Nodes)
	for i := range voters {
		voters[i] = fmt.Sprintf("%d@127.0.0.1:%d", i+1, ports[2*i+1])
	}
	c := &Cluster{}
	for i := range o.Nodes {
		n := &Node{ID: i + 1, dir: filepath.Join(o.Dir, fmt.Sprint("node-", i+1))}
		n.own = fmt.Sprintf("127.0.0.1:%d", ports[2*i])
		n.Address, n.Records = n.own, o.Logs[n.ID]
		if o.Behind != nil {
			n.Address = o.Behind(n.own)
		}
		if n.Records == "" {
			n.Records = filepath.Join(n.dir, "records")
		}
		if err := n.configure(o, ports[2*i+1], strings.Join(voters, ",")); err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	var all sync.WaitGroup
	errs := make([]error, len(c.Nodes))
	for i, n := range c.Nodes {
		all.Go(func() {
			if errs[i] = n.format(ctx); errs[i] == nil {
				errs[i] = n.Start()
			}
		})
	}
	all.Wait()
	for i, n := range c.Nodes {
		if errs[i] == nil {
			errs[i] = n.Await(ctx)
		}
	}
	if err := errors.Join(errs...); err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

// Addresses are the brokers', as clients are told them.
func (c *Cluster) Addresses() []string {
	var list []string
	for _, n := range c.Nodes {
		list = append(list, n.Address)
	}
	return list
}

// Kill ends all nodes at once.
func (c *Cluster) Kill() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

func (n *Node) configure(o Options, controller int, voters string) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "log4j2.properties"), logging, 0o644); err != nil {
		return err
	}
	set := map[string]string{
		"process.roles": "broker,controller", "node.id": fmt.Sprint(n.ID), "controller.quorum.voters": voters,
		"listeners":                      fmt.Sprintf("CLIENT://%s,CONTROLLER://127.0.0.1:%d", n.own, controller),
		"advertised.listeners":           "CLIENT://" + n.Address,
		"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "CLIENT", "controller.listener.names": "CONTROLLER",
		"log.dirs": n.Records, "metadata.log.dir": filepath.Join(n.dir, "metadata"), "log.index.size.max.bytes": "65536",
		"default.replication.factor": fmt.Sprint(o.Nodes), "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
		"auto.create.topics.enable": "false", "num.network.threads": "2", "num.io.threads": "4",
		// So that a node that is gone is missed within seconds.
		"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "6000", "replica.lag.time.max.ms": "5000",
		"controller.quorum.election.timeout.ms": "2000", "controller.quorum.fetch.timeout.ms": "4000", "replica.socket.timeout.ms": "5000",
		"controlled.shutdown.enable": "false",
	}
	for name, value := range o.Set {
		set[name] = value
	}
	var b strings.Builder
	for name, value := range set {
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return os.WriteFile(filepath.Join(n.dir, "server.properties"), []byte(b.String()), 0o644)
}

// java makes a command that runs one of the server's programs.
func (n *Node) java(class string, args ...string) (*exec.Cmd, error) {
	jars := os.Getenv(Env)
	if jars == "" {
		return nil, fmt.Errorf("%s names no folder with the jars of Kafka's server: run make test-brokers", Env)
	}
	return exec.Command("java", append([]string{
		"-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + filepath.Join(n.dir, "log4j2.properties"),
		"-cp", filepath.Join(jars, "*"), class,
	}, args...)...), nil
}

const clusterID = "ZGVlZC10ZXN0cy1rYWZrYQ" // any 16 bytes in base64

func (n *Node) format(ctx context.Context) error {
	cmd, err := n.java("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", filepath.Join(n.dir, "server.properties"))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format node %d: %w: %s", n.ID, err, out)
	}
	return nil
}

// Start starts a node that does not run.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	cmd, err := n.java("kafka.Kafka", filepath.Join(n.dir, "server.properties"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p := &process{cmd, make(chan struct{})}
	if err := p.run(); err != nil {
		return fmt.Errorf("start node %d: %w", n.ID, err)
	}
	n.alive = p
	return nil
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "server.log") }

// Log is the end of what the node's processes have printed.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// Await waits until the node's broker listens.
func (n *Node) Await(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", n.own, time.Second); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-n.Ended():
			return fmt.Errorf("node %d has ended:\n%s", n.ID, n.Log())
		case <-ctx.Done():
			return fmt.Errorf("node %d does not listen: %w:\n%s", n.ID, ctx.Err(), n.Log())
		}
	}
}

// Ended is closed when the node's process has ended.
func (n *Node) Ended() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alive == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return n.alive.ended
}

// Kill ends the node's process at once (SIGKILL).
func (n *Node) Kill() {
	n.signal(syscall.SIGKILL)
	<-n.Ended()
}

// Freeze stops the node's process where it stands (SIGSTOP); its connections
// stay open. Thaw lets it go on.
func (n *Node) Freeze() { n.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (n *Node) Thaw() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s os.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alive != nil {
		_ = n.alive.cmd.Process.Signal(s) // it may have ended
	}
}

// freePorts returns ports that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := gate.Reserve()
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are held until all are known
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
