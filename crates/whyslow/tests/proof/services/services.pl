# Services on ports below those of clients: an event loop, the service that it sends each slow request to, and clients whose requests the
# loop answers at once. It ends when its input ends. Arguments: names of the three, the action for a request and its time in ms, number of
# clients, their think time in ms, a file to lock, and a directory for unix sockets, if the wire is not TCP.
use strict; use warnings;
use Fcntl ':flock'; use IO::Select; use IO::Socket::INET; use IO::Socket::UNIX; use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID);
$| = 1;
my ($loop, $back, $fast, $act, $ms, $clients, $think, $file, $dir) = @ARGV;
my @children;
sub role { my ($name, $does) = @_; my $pid = fork // die; if ($pid) { push @children, $pid; return } $0 = $name; $does->(); exit }
my $sockets = 0;
# The socket and its address.
sub listener {
    if ($dir) { my $at = "$dir/" . $sockets++; return (IO::Socket::UNIX->new(Local => $at, Listen => 32) // die("no socket"), $at) }
    for (1 .. 99) {
        my $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 10000 + int rand 20000, Listen => 32);
        return ($l, $l->sockport) if $l;
    }
    die "no port";
}
sub to { my $at = shift; ($dir ? IO::Socket::UNIX->new(Peer => $at) : IO::Socket::INET->new(PeerAddr => "127.0.0.1:$at")) // die "no connection" }
sub now { clock_gettime(CLOCK_MONOTONIC) }
my ($front, $front_at, $behind, $behind_at) = (listener, listener);

# It reports by its own clock how long it took.
sub act {
    my $from = now();
    if ($act eq 'sleep') { sleep $ms / 1000 }
    elsif ($act eq 'burn') { my $cpu = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) + $ms / 1000; 1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < $cpu }
    else { open my $lock, '>>', $file or die; flock $lock, LOCK_EX }
    return now() - $from;
}
role $back, sub { while (my $c = $behind->accept) { while (sysread $c, my $word, 99) { my $took = act; syswrite $c, "$took\n" } } };
role 'holder', sub { open my $lock, '>>', $file or die; while (1) { flock $lock, LOCK_EX; sleep $ms / 1000; flock $lock, LOCK_UN; sleep 0.002 } }
    if $act eq 'lock';
role $loop, sub {
    my ($all, %asked) = (IO::Select->new($front));
    while (1) {
        for my $c ($all->can_read) {
            if ($c == $front) { $all->add($front->accept); next }
            if (!sysread $c, my $word, 99) { $all->remove($c); close $c; next }
            elsif (my $who = delete $asked{fileno $c}) { $all->remove($c); close $c; syswrite $who, $word }
            elsif ($word =~ /slow/) { my $up = to($behind_at); syswrite $up, "q\n"; $asked{fileno $up} = $c; $all->add($up) }
            else { syswrite $c, "ok\n" }
        }
    }
};
for (1 .. $clients) {
    role $fast, sub { my $c = to($front_at); while (1) { syswrite $c, "fast\n"; sysread $c, my $word, 99; sleep $think / 1000 } };
}
# Each process has its name by now.
for my $pid (@children) { 1 while ((do { local (@ARGV, $/) = "/proc/$pid/comm"; <> } // "") =~ /^perl/) && sleep 0.001 }
print "up $front_at\n";
1 while <STDIN>;
kill 9, @children;
