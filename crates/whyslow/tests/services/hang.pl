# A client that has asked once and waits for longer than anybody looks, and a service that is kept from answering. Prints the client's pid
# once all wait; its input's end is its own. Arguments: names of the three, what keeps the service, how the client waits, a file to
# lock, and a directory for a unix socket, if it is not TCP.
use strict; use warnings;
use Fcntl ':flock'; use IO::Select; use IO::Socket::INET; use IO::Socket::UNIX; use POSIX ':sys_wait_h';
$| = 1;
my ($client, $service, $holder, $act, $way, $file, $dir) = @ARGV;
my (@children, $at);
pipe(my $ready, my $tells) or die;
sub await { sysread $ready, my $one, 1 }
sub role { my ($name, $does) = @_; my $pid = fork // die; if ($pid) { push @children, $pid; return $pid } $0 = $name; $does->(); exit }
sub to { ($dir ? IO::Socket::UNIX->new(Peer => $at) : IO::Socket::INET->new(PeerAddr => $at)) // die }
sub tell_it { syswrite $tells, '.' }
sub wait_for_data { my $c = shift; my $set = IO::Select->new($c); if ($way eq 'select') { $set->can_read } elsif ($way =~ /looks=(.*)/) { 1 until $set->can_read($1) } sysread $c, my $word, 9 }
my $listener = $dir ? IO::Socket::UNIX->new(Local => "$dir/s", Listen => 4) : IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 4);
$at = $dir ? "$dir/s" : '127.0.0.1:' . $listener->sockport;
if ($act eq 'lock') { role $holder, sub { open my $lock, '>>', $file or die; flock $lock, LOCK_EX; tell_it; sleep 1000 while 1 }; await }
# A queue without jobs for the client, which is busy with others.
if ($act eq 'jobs') {
    role $service, sub {
        my ($all, %asks) = IO::Select->new($listener);
        while (1) {
            for my $c ($all->can_read) {
                if ($c == $listener) { $all->add($listener->accept); next }
                sysread $c, my $word, 9 or exit;
                if ($word =~ /q/) { tell_it } else { my $n = 0; $n += $_ for 1 .. 20000; syswrite $c, "a\n" }
            }
        }
    };
    role $holder, sub { my $c = to(); while (1) { syswrite $c, "f\n"; sysread $c, my $word, 9 } };
}
my $pid = $act eq 'jobs' ? 0 : role $service, sub {
    if ($act eq 'queued') { sleep 1000 while 1 }
    my $c = $listener->accept;
    sysread $c, my $word, 9 unless $act eq 'unread';
    if ($act eq 'answers') { syswrite $c, "a\n"; 1 while sysread $c, $word, 9 }
    tell_it;
    if ($act eq 'burn') { 1 while 1 }
    elsif ($act eq 'lock') { open my $lock, '>>', $file or die; flock $lock, LOCK_EX }
    sleep 1000 while 1;
};
my $asks = role $client, sub {
    my $c = to();
    syswrite $c, "q\n";
    if ($act eq 'answers') { sysread $c, my $word, 9; tell_it }
    tell_it if $act eq 'queued';
    wait_for_data $c while 1;
};
await;
if ($act eq 'stop') { kill STOP => $pid; waitpid $pid, WUNTRACED }
print "up $asks\n";
1 while <STDIN>;
kill 9, @children;
